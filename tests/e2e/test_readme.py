"""The README's commands give the documented answers."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```console\n(.*?)```", README, re.DOTALL)
ANSWERED = [
    (command, answer)
    for block in BLOCKS
    for command, answer in re.findall(
        r"^\$ (compatgate check --pool .*?)\n(.*?)(?=^\$ |\Z)", block, re.DOTALL | re.MULTILINE
    )
]


def gist(text: str) -> list[str]:
    """The verdict, the rules that object, and the fixes: what does not change with the day."""
    wanted = ("ALLOWED", "DENIED", "NO DECISION", "FAIL ", "  fix ", "          --set")
    objecting = text.partition("WARN ")[0]
    return [line.rstrip() for line in objecting.splitlines() if line.startswith(wanted)]


def test_the_readme_shows_an_answer():
    assert len(ANSWERED) == 1


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 90


def test_the_rules_are_counted() -> None:
    page = (ROOT / "docs" / "reference" / "rules.md").read_text()
    rules = re.findall(r"^## CG\d+", page, re.MULTILINE)
    assert f"{len(rules)} [rules]" in README


@pytest.mark.parametrize(("command", "answer"), ANSWERED, ids=lambda value: value[:60])
def test_a_command_of_the_readme_gives_the_documented_answer(command, answer, monkeypatch):
    monkeypatch.setenv("COLUMNS", "96")
    monkeypatch.setenv("NO_COLOR", "1")
    arguments = shlex.split(command)[1:]
    done = subprocess.run(
        [sys.executable, "-m", "compatgate", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    shown = gist(answer)
    assert shown
    assert gist(done.stdout)[: len(shown)] == shown


def test_the_question_over_rest_has_the_documented_answer(start_server):
    block = next(block for block in BLOCKS if "$ curl" in block)
    curl, result = re.fullmatch(r"\$ (curl .*?\)')\n(fail .*?)\n", block, re.DOTALL).groups()
    server = start_server("--matrix", "matrix/examples")
    here = "http://127.0.0.1:8080"
    done = subprocess.run(
        ["bash", "-c", curl.replace(here, server.url)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.strip() == result, done.stderr
    command = re.search(rf"^`compatgate check --server {here} (.*?)`$", README, re.MULTILINE)
    done = server.check(*shlex.split(command[1]))
    assert done.returncode == 1
    assert all(f"FAIL    {rule}" in done.stdout for rule in re.findall(r"CG\d+", result))
