"""The commands and documents of docs/how-to/matrix.md, in order, on a database of their own."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from compatgate.cli.main import main
from compatgate.kit.database.database import ENVIRONMENT

PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "matrix.md").read_text()
COMMANDS = re.findall(r"^\$ compatgate (.*)$", PAGE, re.MULTILINE)
Run = Callable[[str], tuple[int, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Call a command as a shell would: its status and output."""
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "gate.db"))
    monkeypatch.delenv("COMPATGATE_SERVER", raising=False)
    monkeypatch.chdir(tmp_path)

    def running(command: str) -> tuple[int, str]:
        asked, _, file = command.partition(" > ")
        capsys.readouterr()
        status = main(shlex.split(asked))
        out = capsys.readouterr().out
        if file:
            Path(file).write_text(out)
        return status, out

    return running


def test_the_commands_of_the_page_work_in_their_order(run: Run) -> None:
    assert len(COMMANDS) == 7
    said = {}
    for command in COMMANDS:
        status, said[command] = run(command)
        assert status == 0, command
    *_, revisions, _, decisions = said.values()
    assert "what runs today" in revisions
    assert decisions.count("prod-a100") == 1, "looking back is not logged"


def test_the_documents_of_the_page_are_taken(run: Run, tmp_path: Path) -> None:
    documents = re.findall(r"^```yaml\n(apiVersion.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "page.yaml").write_text("---\n".join(documents))
    status, said = run("matrix import page.yaml")
    assert status == 0
    assert said.startswith("+ Target prod-a100\n+ Entry torch24-cu124\n+ Waiver legacy-ocr\n")
