"""The README's commands give the documented answers."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parents[2] / "README.md").read_text()
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
    wanted = ("ALLOWED", "DENIED", "UNDECIDED", "FAIL ", "  fix ", "          --set")
    objecting = text.partition("WARN ")[0]
    return [line.rstrip() for line in objecting.splitlines() if line.startswith(wanted)]


def test_the_readme_shows_answers():
    assert len(ANSWERED) >= 2


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
