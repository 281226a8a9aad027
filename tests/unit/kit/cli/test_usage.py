"""A usage declares options as the help shows them."""

from __future__ import annotations

import argparse

import pytest

from compatgate.kit.cli.parser import Parser
from compatgate.kit.cli.usage import action, add_usage

USAGE = """\
[files: FILE|- ...]    files to read
NAME                   name of the thing
-o, --output FILE = -  output file
--top N = 20           number of lines
--host H ...           host; may be
                       repeated
--attach [IMAGE]       image
since: --from TIME (required)
    first day
places:
--better {lower,higher}  direction
--wait                 wait
| --detach             do not wait
"""


def parsed(*words: str) -> dict[str, object]:
    parser = Parser(prog="thing")
    add_usage(parser, USAGE, top={"type": int}, attach={"const": ""})
    return vars(parser.parse_args(words))


def test_options_have_the_names_values_and_defaults_of_their_lines() -> None:
    found = parsed("a", "b", "x", "--from", "now", "--host", "h1", "--host", "h2", "--attach")
    assert (found["files"], found["name"], found["since"]) == (["a", "b"], "x", "now")
    assert (found["output"], found["top"], found["host"]) == ("-", 20, ["h1", "h2"])
    assert (found["attach"], found["wait"], found["detach"]) == ("", False, False)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["x"], "required: --from"),
        (["x", "--from", "now", "--wait", "--detach"], "not allowed with"),
        (["x", "--from", "now", "--better", "best"], "invalid choice"),
    ],
)
def test_what_a_line_excludes_is_refused(
    words: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parsed(*words)
    assert problem in capsys.readouterr().err


def test_the_help_has_groups_and_defaults() -> None:
    parser = argparse.ArgumentParser(prog="thing")
    add_usage(parser, USAGE)
    text = " ".join(parser.format_help().split())
    assert "places:" in text
    assert "number of lines (default: 20)" in text
    assert "host; may be repeated" in text


def test_an_action_is_declared_above_the_function_that_runs_it() -> None:
    @action("run it", "--wait  wait", epilog="more")
    def run(args: argparse.Namespace) -> int:
        return 3 if args.wait else 0

    parser = argparse.ArgumentParser()
    run.add_arguments(parser)
    assert parser.epilog == "more"
    assert (run.help, run(parser.parse_args(["--wait"]))) == ("run it", 3)
