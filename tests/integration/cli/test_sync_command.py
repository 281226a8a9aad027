"""``matrix sync``, ``export --split``, ``diff`` and ``backtest``, as a Git repository uses them."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compatgate.cli.main import main
from compatgate.cli.matrix.diff import describe_sync

FILE = """\
# The fleet of team-gpu.
apiVersion: compatgate.dev/v1
kind: Target
metadata: {name: prod}   # one cluster
spec:
  pools:
  - {name: a100, gpu: A100-SXM4-80GB, driver: 535.183.01, count: 16}
  policy: {mode: enforce, requireEntry: true}
---
apiVersion: compatgate.dev/v1
kind: Entry
metadata: {name: torch24}
spec:
  targets: [prod]
  components: {torch: "~=2.4.0"}   # not 2.5
  status: blessed
"""
Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> Run:
    """Runs an action of ``matrix`` on a database of its own; returns status and output."""
    monkeypatch.setenv("COMPATGATE_DATABASE", str(tmp_path / "gate.db"))
    for name in ("GITHUB_SHA", "CI_COMMIT_SHA", "BUILD_SOURCEVERSION", "GIT_COMMIT"):
        monkeypatch.delenv(name, raising=False)

    def call(*words: str) -> tuple[int, str]:
        status = main(list(words))
        return status, capsys.readouterr().out

    return call


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one file."""
    (tmp_path / "matrix").mkdir()
    (tmp_path / "matrix" / "fleet.yaml").write_text(FILE)
    return tmp_path / "matrix"


def test_a_folder_is_synced_checked_and_exported_without_a_difference(
    run: Run, folder: Path
) -> None:
    owned = ("--name", "fleet", "--prune")
    status, said = run("matrix", "sync", str(folder), *owned, "--revision-note", "0123abc")
    assert (status, said.splitlines()[-1]) == (0, "revision 1: 2 created, 0 unchanged")
    assert "matrix sync fleet (0123abc)" in run("matrix", "log")[1]
    assert run("matrix", "sync", str(folder), *owned, "--check")[0] == 0
    assert run("matrix", "export", "--split", str(folder), "--sync", "fleet")[0] == 0
    assert (folder / "fleet.yaml").read_text() == FILE
    assert [path.name for path in folder.rglob("*")] == ["fleet.yaml"]
    (folder / "fleet.yaml").write_text(FILE.replace("535.183.01", "570.124.06"))
    status, said = run("matrix", "sync", str(folder), *owned, "--check")
    assert status == 1
    assert 'spec.pools.a100.driver: "535.183.01" -> "570.124.06"' in said
    assert run("matrix", "sync", str(folder), "--prune")[0] == 2


def test_an_export_into_the_folder_changes_what_differs_and_keeps_comments(
    run: Run, folder: Path, tmp_path: Path
) -> None:
    run("matrix", "sync", str(folder), "--name", "fleet")
    other = tmp_path / "other.yaml"
    other.write_text(FILE.replace("~=2.4.0", "~=2.6.0") + "---\n" + ENTRY)
    run("matrix", "sync", str(other), "--name", "fleet")
    run("matrix", "export", "--split", str(folder), "--sync", "fleet")
    assert (folder / "fleet.yaml").read_text() == FILE.replace("~=2.4.0", "~=2.6.0")
    assert (folder / "entries" / "new.yaml").exists()
    assert run("matrix", "sync", str(folder), "--name", "fleet", "--prune", "--check")[0] == 0


ENTRY = """\
apiVersion: compatgate.dev/v1
kind: Entry
metadata: {name: new}
spec: {targets: [prod], components: {cuda: "12.4.*"}, status: candidate}
"""


def test_files_that_are_wrong_anywhere_change_nothing_and_are_named(
    run: Run, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "wrong.yaml").write_text(ENTRY.replace("candidate", "candidat"))
    assert main(["matrix", "sync", str(folder), "--name", "fleet"]) == 2
    assert "wrong.yaml:4: spec.status" in capsys.readouterr().err
    assert run("matrix", "export")[1] == ""


def test_a_pull_request_is_told_what_changes_and_who_would_be_denied(
    run: Run, folder: Path
) -> None:
    run("matrix", "sync", str(folder), "--name", "fleet")
    assert run("check", "--target", "prod", "--stack", "torch=2.4.1+cu124,python=3.11")[0] == 0
    (folder / "fleet.yaml").write_text(FILE.replace("~=2.4.0", "~=2.5.0"))
    words = ("--sync", "fleet", "--prune", "--format", "markdown")
    status, said = run("matrix", "diff", str(folder), *words)
    assert status == 0
    assert said.startswith(
        "<!-- compatgate matrix: fleet -->\n## The matrix would change: 1 changed"
    )
    assert "- change Entry torch24\n    - `spec.components.torch`: `~=2.4.0` → `~=2.5.0`" in said
    assert "**Backtest:** 1 newly denied (of 1 question, 1 decision)" in said
    status, said = run("matrix", "backtest", str(folder), "--format", "json")
    assert status == 1
    assert json.loads(said)["groups"][0]["rule"] == "CG801"
    status, said = run("matrix", "backtest", "--delete", "Entry/torch24")
    assert (status, "Newly denied: 1 question, 1 decision, 16 nodes" in said) == (1, True)
    assert run("matrix", "backtest", "--delete", "torch24")[0] == 2
    assert run("matrix", "backtest")[0] == 2


def test_documents_on_standard_input_are_compared_and_backtested(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("matrix", "sync", str(folder), "--name", "fleet")
    run("check", "--target", "prod", "--stack", "torch=2.4.1+cu124,python=3.11")
    text = FILE.replace("~=2.4.0", "~=2.5.0").encode()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
    status, said = run("matrix", "diff", "-", "--sync", "fleet", "--format", "markdown")
    assert status == 0
    assert "**Backtest:** 1 newly denied" in said


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({}, "matrix sync fleet"),
        ({"GITHUB_SHA": "a1", "GITHUB_REPOSITORY": "o/r"}, "matrix sync fleet (o/r@a1)"),
        ({"CI_COMMIT_SHA": "a1"}, "matrix sync fleet (a1)"),
    ],
)
def test_the_reason_of_a_revision_names_the_commit(environ: dict[str, str], said: str) -> None:
    assert describe_sync("fleet", None, None, environ) == said
    assert describe_sync(None, "roll 570", "PR 7", environ) == "roll 570 (PR 7)"
