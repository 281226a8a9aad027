"""Finding the sub-command, and turning errors into exit statuses."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from compatgate import version
from compatgate.cli.main import COMMANDS, main
from compatgate.errors import BadInput, ManyProblems, Unavailable
from compatgate.kit.cli.parser import Parser, load_command
from compatgate.kit.cli.usage import command


def run_with(monkeypatch: pytest.MonkeyPatch, run: Any) -> None:
    """Make ``compatgate check`` run something else."""
    fake = command(epilog="")(run)
    monkeypatch.setattr("compatgate.kit.cli.parser.load_command", lambda code: fake)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_a_module_with_the_agreed_parts(name: str) -> None:
    code, help_text = COMMANDS[name]
    found = load_command(code)
    assert help_text
    assert callable(found.add_arguments)
    assert callable(found.run)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"usage: compatgate {name}")


def _parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                yield from _parsers(child)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_action_of_a_command_explains_itself(name: str) -> None:
    whole = Parser(prog=name)
    load_command(COMMANDS[name][0]).add_arguments(whole)
    for parser in _parsers(whole):
        assert parser.format_help().startswith(f"usage: {parser.prog}")


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_option_argument_and_action_is_explained(name: str) -> None:
    whole = Parser(prog=f"compatgate {name}", description="a command")
    load_command(COMMANDS[name][0]).add_arguments(whole)
    assert "\nexample" in whole.format_help()
    for parser in _parsers(whole):
        assert parser.description, parser.prog
        for action in parser._actions:
            grouped = isinstance(action, argparse._SubParsersAction)
            assert action.help or grouped, f"{parser.prog} {action.option_strings or action.dest}"


def test_the_overview_names_every_command_and_imports_none() -> None:
    code = (
        "import sys; from compatgate.cli.main import main; main(['--help']);"
        "print(sorted(m for m in sys.modules if m.startswith('compatgate.')))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert all(f"  {name} " in result.stdout for name in COMMANDS)
    assert "['compatgate.cli', 'compatgate.cli.main', 'compatgate.errors']" in result.stdout


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"compatgate {version()}\n"


def test_no_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "commands:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["chekc"], "error: unknown command 'chekc' (did you mean 'check'?)\n"),
        (["--verbose"], "error: unknown option '--verbose' (known: check, solve, lock, inspect,"),
        (["check", "--polo", "x"], "unknown argument '--polo', did you mean '--pool'?"),
        (
            ["check", "--format", "yaml"],
            "argument --format: 'yaml' is not NAME or NAME=FILE of text, json",
        ),
        (["check", "--pool"], "argument --pool: expected one argument"),
        (["target", "lst"], "invalid choice: 'lst'"),
        (["matrix", "list", "--limit", "0"], "argument --limit: '0' is not a number from 1"),
        (["canary", "list", "--limit", "-1"], "argument --limit: '-1' is not a number from 1"),
    ],
)
def test_a_usage_error_is_one_line_that_names_the_near_one(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert text in error
    assert error.startswith("error: ")
    assert error.count("\n") == 1


def test_options_are_not_abbreviated(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--sta", "cuda=12.4"]) == 2


def test_an_error_is_one_line_with_its_hint(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(args: object) -> int:
        raise BadInput("is wrong", field="pool.gpu", hint="write another")

    run_with(monkeypatch, fail)
    assert main(["check"]) == 2
    assert capsys.readouterr().err == "error: pool.gpu: is wrong (write another)\n"


def test_many_problems_are_a_line_each(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(args: object) -> int:
        raise ManyProblems("2 mistakes", [BadInput("one"), BadInput("two")])

    run_with(monkeypatch, fail)
    assert main(["check"]) == 2
    assert capsys.readouterr().err == "error: 2 mistakes\n  one\n  two\n"


def test_what_is_not_available_exits_with_3(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(args: object) -> int:
        raise Unavailable("the gate does not answer")

    run_with(monkeypatch, fail)
    assert main(["check"]) == 3


def test_a_defect_is_one_line_with_advice(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(args: object) -> int:
        raise KeyError("x")

    monkeypatch.delenv("COMPATGATE_DEBUG", raising=False)
    run_with(monkeypatch, fail)
    assert main(["check"]) == 2
    error = capsys.readouterr().err
    assert "unexpected KeyError" in error
    assert "COMPATGATE_DEBUG=1" in error
    assert error.count("\n") == 1


def test_debugging_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(args: object) -> int:
        raise KeyError("x")

    monkeypatch.setenv("COMPATGATE_DEBUG", "1")
    run_with(monkeypatch, fail)
    with pytest.raises(KeyError):
        main(["check"])


@pytest.mark.parametrize(
    "arguments",
    [
        ["verify", "verdict.json", "--key", "gate.pub", "--image", ""],
        ["verify", "verdict.json", "--key", "gate.pub", "--stack="],
        ["check", "--pool", "driver=580.95.05,gpu=L4", "--stack", "cuda=12.4", "--lock", ""],
        ["check", "--target", "t", "--stack", "cuda=12.4", "--server", ""],
    ],
)
def test_a_variable_of_a_script_that_is_not_set_leaves_nothing_unchecked(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert main(arguments) == 2
    assert ": is empty; give a value" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--sbom", "--image", "--target", "--probe"])
def test_an_option_of_one_value_is_refused_twice_rather_than_forgotten_once(
    capsys: pytest.CaptureFixture[str], option: str
) -> None:
    assert main(["check", option, "one", option, "two"]) == 2
    assert f"{option} is given twice" in capsys.readouterr().err


def test_an_interrupt_exits_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(args: object) -> int:
        raise KeyboardInterrupt

    run_with(monkeypatch, stop)
    assert main(["check"]) == 130


def test_a_closed_output_is_quiet() -> None:
    command = (
        f"{sys.executable} -m compatgate explain --format json | true; echo ${{PIPESTATUS[0]}}"
    )
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert result.stderr == ""
    assert result.stdout.strip() in ("0", "141")


def test_typing_extensions_can_be_imported_after_msgspec_was() -> None:
    code = (
        "import sys; from compatgate.cli.main import main; main(['check', '--help']);"
        "assert 'typing_extensions' not in sys.modules; import typing_extensions"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stderr == ""


def test_a_question_about_a_pool_loads_nothing_that_reads_files_or_networks() -> None:
    code = (
        "import sys; from compatgate.cli.main import main;"
        "main(['check', '--pool', 'driver=535.104.05,gpu=L4', '--stack', 'cuda=12.2,arch=sm_89']);"
        "print([m for m in sys.modules if m.startswith('compatgate.discovery')"
        " or m in ('compatgate.check.wheels', 'urllib3')])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.splitlines()[-1] == "[]", result.stdout
