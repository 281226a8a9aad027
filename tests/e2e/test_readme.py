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


def test_the_readme_shows_answers():
    assert len(ANSWERED) >= 2


def test_the_rules_are_counted() -> None:
    rules = re.findall(r"^## CG\d+", (ROOT / "docs" / "rules.md").read_text(), re.MULTILINE)
    assert f"{len(rules)} rules" in README


def test_every_page_is_named() -> None:
    pages = {f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")}
    assert pages <= set(re.findall(r"\]\((docs/[^)#]+)\)", README))


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
    assert gist(done.stdout) == gist(answer)
    assert gist(answer)


def test_the_curl_and_the_target_of_the_readme_give_the_documented_answers(start_server):
    block = next(block for block in BLOCKS if "$ curl" in block)
    curl, result, command, answer = re.fullmatch(
        r"\$ (curl .*?\)')\n(fail .*?)\n\$ (compatgate .*?)\n(.*)", block, re.DOTALL
    ).groups()
    server = start_server("--matrix", "matrix/examples")
    server.env |= {"COLUMNS": "96", "NO_COLOR": "1"}
    here = "http://127.0.0.1:8080"
    done = subprocess.run(
        ["bash", "-c", curl.replace(here, server.url)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.strip() == result, done.stderr
    *_, target, _, stack = shlex.split(command)
    done = server.check("--target", target, "--stack", stack)
    assert done.returncode == 1
    assert gist(done.stdout) == gist(answer)
