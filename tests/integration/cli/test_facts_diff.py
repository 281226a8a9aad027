"""``compatgate facts diff``: records, verdicts of the matrix, and decisions asked again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compatgate.catalog import sources
from compatgate.cli.main import main
from compatgate.kit.database.database import ENVIRONMENT
from compatgate.resources import matrix_dir
from compatgate.service.app import open_rooms

EXAMPLES = str(matrix_dir() / "examples")
Run = Callable[..., tuple[int, str, str]]
BREAKS = """
schema: facts/known_issues/v1
issues:
- id: OURS-1
  title: jobs hang
  components: {torch: 2.4.*}
  outcome: fail
  message: the data loader hangs after an hour
  source: our incident list
  confidence: published
"""
TORCH = {"cuda": "12.4.1", "cudnn": "9.1.0", "torch": "2.4.1+cu124", "arch": ["sm_80"]}


@pytest.fixture
def run(command: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Compare, where the user has no database; give exit status, output, errors."""
    monkeypatch.delenv(ENVIRONMENT, raising=False)
    monkeypatch.delenv("COMPATGATE_FACTS", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return lambda *arguments: command("facts", "diff", *arguments)


@pytest.fixture
def breaking(tmp_path: Path) -> str:
    """An overlay with which torch 2.4 fails."""
    path = tmp_path / "issues.yaml"
    path.write_text(BREAKS)
    return str(path)


@pytest.fixture
def database(database_url: str) -> str:
    """A database with the example matrix, and three decisions: one of them twice."""
    assert main(["matrix", "import", EXAMPLES, "--database", database_url]) == 0
    rooms = open_rooms(database_url, overlays=[])
    pool = {"gpu": "A100-SXM4-80GB", "driver": "535.183.01"}
    older = {"pool": pool, "stack": {"cuda": "12.1", "cudnn": "8.9.2", "torch": "2.1.0+cu121"}}
    for body in (older, {"pool": pool, "stack": TORCH}, {"target": "prod-a100", "stack": TORCH}):
        rooms.gate.decide(body, asked_by="tests", source="cli")
    rooms.gate.decide({"target": "prod-a100", "stack": TORCH}, asked_by="tests", source="cli")
    rooms.close()
    return database_url


def parsed(result: tuple[int, str, str], status: int) -> dict[str, Any]:
    assert result[0] == status, result[2]
    document: dict[str, Any] = json.loads(result[1])
    return document


def test_facts_alone_are_compared_where_there_is_no_matrix(run: Run, breaking: str) -> None:
    status, out, err = run("shipped", breaking)
    assert (status, out) == (0, "facts: 1 record differs\n  + known_issues issues OURS-1\n")
    assert "no verdicts were compared: name a matrix with --matrix" in err


def test_a_changed_field_is_shown_with_both_values(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "nccl.yaml"
    path.write_text("releases: [{version: 2.27.7, tag: v9}]")
    status, out, _ = run("shipped", str(path))
    assert status == 0
    assert "~ nccl releases 2.27.7\n    tag: " in out
    assert out.rstrip().endswith("-> v9")


def test_a_whole_folder_of_facts_is_compared_as_it_is(run: Run, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(sources.facts_dir(), other)
    assert run(str(other), "shipped")[1] == "facts: no records differ\n"
    (other / "packages" / "xformers.yaml").unlink()
    status, out, _ = run(str(other), "shipped")
    assert status == 0
    assert "  + packages/xformers records xformers-0.0.35-" in out


def test_entries_that_break_are_named_with_the_rule_and_the_exit_status_is_1(
    run: Run, breaking: str
) -> None:
    status, out, _ = run("shipped", breaking, "--matrix", EXAMPLES)
    assert status == 1
    assert "entries in use change on" in out
    assert "prod-a100 torch24-cu124 on a100-80: " in out
    assert "-> fail (breaks)" in out
    assert "CG701 OURS-1 jobs hang: the data loader hangs after an hour" in out


def test_what_only_gets_better_is_0(run: Run, breaking: str) -> None:
    status, out, _ = run(breaking, "shipped", "--matrix", EXAMPLES)
    assert status == 0
    assert "(improves)" in out


def test_decisions_are_asked_again_each_verdict_once(
    run: Run, breaking: str, database: str
) -> None:
    found = parsed(run("shipped", breaking, "--database", database, "--format", "json"), 1)
    decisions = found["decisions"]
    assert (decisions["read"], decisions["verdicts"]) == (4, 3)
    changed = {change["target"]: change for change in decisions["changed"]}
    assert set(changed) == {"prod-a100", None}
    assert changed["prod-a100"]["times"] == 2
    assert changed[None]["after"] == "fail"
    assert changed[None]["rules"] == ["CG701"]
    assert (changed[None]["allowed_before"], changed[None]["allowed_after"]) == (True, False)
    assert decisions["not_asked"] == {}
    assert found["entries"]["judged"] > len(found["entries"]["changed"]) > 0


def test_only_the_newest_decisions_are_asked_again(run: Run, breaking: str, database: str) -> None:
    arguments = ("shipped", breaking, "--database", database, "--format", "json")
    decisions = parsed(run(*arguments, "--decisions", "1"), 1)["decisions"]
    assert (decisions["read"], decisions["verdicts"]) == (1, 1)
    assert decisions["changed"][0]["target"] == "prod-a100"


def test_nothing_is_stored_and_equal_facts_change_nothing(run: Run, database: str) -> None:
    rooms = open_rooms(database, overlays=[])
    before = rooms.decisions.list_decisions(limit=10)
    status, out, _ = run("shipped", "shipped", "--database", database)
    assert status == 0
    assert out.splitlines()[0] == "facts: no records differ"
    assert "decisions: none of 3 verdicts change (4 decisions)" in out
    assert rooms.decisions.list_decisions(limit=10) == before
    rooms.close()


def test_a_target_whose_gpu_the_other_facts_do_not_have_is_said(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "gpus.yaml"
    path.write_text("gpus: [{name: L4, remove: true}]")
    found = parsed(run("shipped", str(path), "--matrix", EXAMPLES, "--format", "json"), 0)
    assert "inference-l4" in found["entries"]["unusable"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["shipped", "/no/such/folder"], "/no/such/folder"),
        (["", "shipped"], "facts"),
        (["shipped", "shipped", "--matrix", EXAMPLES, "--database", "x.db"], "--matrix and"),
        (["shipped", "shipped", "--matrix", "/no/such/file"], "/no/such/file"),
        (["shipped", "shipped", "--database", "/no/such/file.db"], "database"),
    ],
)
def test_bad_input_is_one_line_and_2(run: Run, arguments: list[str], said: str) -> None:
    status, _, err = run(*arguments)
    assert status == 2
    assert err.startswith("error: ")
    assert said in err
    assert "Traceback" not in err
