"""The commands that work on a database, as a user runs them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compatgate.cli.main import main
from compatgate.kit.database import tables
from compatgate.kit.database.database import ENVIRONMENT
from compatgate.resources import matrix_dir

EXAMPLES = str(matrix_dir() / "examples")
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(command: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run a command line on a database of its own: exit status, output, errors."""
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "gate.db"))
    monkeypatch.delenv("COMPATGATE_FACTS", raising=False)
    return command


@pytest.fixture
def stocked(run: Run) -> Run:
    assert run("matrix", "import", EXAMPLES)[0] == 0
    return run


def _json(result: tuple[int, str, str]) -> Any:
    assert result[0] == 0, result[2]
    return json.loads(result[1])


def test_an_import_says_what_it_changed_and_again_that_it_changed_nothing(run: Run) -> None:
    _, out, _ = run("matrix", "import", EXAMPLES, "--dry-run")
    assert out.endswith("dry run: 15 would change, 0 would not\n")
    status, out, _ = run("matrix", "import", EXAMPLES, "--reason", "first")
    assert status == 0
    assert "+ Target prod-a100\n" in out
    assert out.endswith("revision 1: 15 changed, 0 unchanged\n")
    assert "nothing to change" in run("matrix", "import", EXAMPLES)[1]
    (row,) = _json(run("matrix", "log", "--format", "json"))
    assert (row["reason"], row["proposal"]) == ("first", None)
    assert " direct " in run("matrix", "log")[1]
    assert "\nmade directly, without a proposal\n" in run("matrix", "log", "1")[1]


def test_an_import_with_mistakes_names_each_with_file_and_line(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(
        "apiVersion: compatgate.dev/v1\nkind: Entry\nmetadata: {name: e}\nspec:\n"
        "  targets: [nowhere]\n  components: {cuda: 12.10}\n  status: fine\n"
    )
    status, out, err = run("matrix", "import", str(path))
    assert (status, out) == (2, "")
    lines = err.splitlines()
    assert lines[0] == "error: 3 problems; nothing was changed"
    places = [line.split(": ")[0].strip() for line in lines[1:]]
    assert places == [f"{path}:{line}" for line in (5, 6, 7)]
    status, out, _ = run("matrix", "import", str(path), "--format", "json")
    assert status == 2
    found = json.loads(out)["problems"]
    assert [(p["line"], p["field"]) for p in found] == [
        (5, "spec.targets[0]"),
        (6, "spec.components.cuda"),
        (7, "spec.status"),
    ]
    assert run("matrix", "list")[1] == "no entries\n"


def test_an_export_differs_from_nothing(stocked: Run, tmp_path: Path) -> None:
    path = tmp_path / "out.yaml"
    assert stocked("matrix", "export", "-o", str(path))[0] == 0
    assert stocked("matrix", "diff", str(path), "--exit-code")[:2] == (0, "no differences\n")
    path.write_text(path.read_text().replace("580.95.05", "580.126.20"))
    status, out, _ = stocked("matrix", "diff", str(path), "--exit-code")
    assert status == 1
    assert '    spec.pools.l4.driver: "580.95.05" -> "580.126.20"\n' in out
    assert len(_json(stocked("matrix", "export", "--format", "json"))) == 15


def test_revisions_are_compared_by_number_and_by_time(stocked: Run) -> None:
    changes = _json(stocked("matrix", "diff", "--from", "0", "--to", "1", "--format", "json"))
    assert len(changes) == 15
    assert stocked("matrix", "diff", "--from", "2020-01-01", "--exit-code")[0] == 1
    assert stocked("matrix", "export", "--at", "2020-01-01")[1] == ""
    status, _, err = stocked("matrix", "diff", "--from", "9")
    assert (status, "revision 9 does not exist" in err) == (2, True)
    assert stocked("matrix", "diff")[0] == 2
    assert stocked("matrix", "diff", EXAMPLES, "--from", "1")[0] == 2
    assert "a revision's number, or a time" in stocked("matrix", "export", "--at", "soon")[2]


def test_lists_are_filtered_and_limited(stocked: Run) -> None:
    found = _json(stocked("matrix", "list", "--component", "pytorch", "--format", "json"))
    assert {entry["metadata"]["name"][:5] for entry in found} == {"torch", "vllm0"}
    assert len(_json(stocked("matrix", "list", "--limit", "3", "--format", "json"))) == 3
    _, out, _ = stocked("matrix", "list", "waivers", "--owner", "team-ocr")
    assert out.splitlines()[1].startswith("legacy-ocr  CG803")
    assert stocked("matrix", "list", "targets", "--component", "cudnn")[0] == 2
    assert stocked("matrix", "list", "--component", "cudn")[0] == 2


def test_a_document_is_shown_as_it_could_be_imported(stocked: Run, tmp_path: Path) -> None:
    _, out, _ = stocked("matrix", "show", "torch24-cu124")
    path = tmp_path / "one.yaml"
    path.write_text(out)
    assert "nothing to change" in stocked("matrix", "import", str(path))[1]
    status, _, err = stocked("matrix", "show", "torch24-cu12")
    assert status == 2
    assert "did you mean torch24-cu12" in err
    assert stocked("matrix", "show", "torch24-cu124", "--kind", "waiver")[0] == 2


def test_targets_are_listed_shown_and_deleted(stocked: Run) -> None:
    _, out, _ = stocked("target", "list", "--label", "tier=prod")
    assert [line.split()[0] for line in out.splitlines()] == ["TARGET", "inference-l4", "prod-a100"]
    shown = _json(stocked("target", "show", "dev-rtx", "--format", "json"))
    assert shown["revision"] == 1
    status, _, err = stocked("target", "delete", "dev-rtx")
    assert (status, "still used by Entry torch28-cu128" in err) == (2, True)


def test_a_token_is_printed_once(run: Run) -> None:
    status, out, _ = run(
        "token", "create", "--name", "ci", "--scope", "read,gate", "--expires", "90d"
    )
    assert status == 0
    assert out.startswith("cg_")
    assert out.count("\n") == 1
    assert out.strip() not in run("token", "list")[1]
    (row,) = _json(run("token", "list", "--format", "json"))
    assert row["scopes"] == ["gate", "read"]
    assert row["active"]
    assert run("token", "revoke", "ci")[0] == 0
    assert run("token", "list")[1] == "no tokens\n"
    assert "revoked" in run("token", "list", "--all")[1]
    assert run("token", "revoke", "nobody")[0] == 2
    assert run("token", "create", "--name", "boss", "--scope", "admin")[0] == 0
    status, _, err = run("token", "revoke", "boss")
    assert status == 2
    assert "boss is the last one with the scope admin" in err
    assert run("token", "revoke", "boss", "--last-admin")[0] == 0
    assert run("token", "create", "--name", "x", "--scope", "everything")[0] == 2
    assert run("token", "create", "--name", "x", "--scope", "read", "--expires", "1y")[0] == 2


def test_the_audit_log_is_listed_and_verified(stocked: Run) -> None:
    report = _json(stocked("audit", "verify", "--format", "json"))
    assert (report["ok"], report["links"], report["revisions"]) == (True, 1, 1)
    assert stocked("audit", "verify", "--head", report["head"])[0] == 0
    status, out, _ = stocked("audit", "verify", "--head", "0123")
    assert status == 1
    assert out.startswith("NOT INTACT")
    *seals, link = _json(stocked("audit", "list", "--format", "json"))
    assert {seal["action"] for seal in seals} == {"audit.seal"}
    assert link["action"] == "matrix.import"
    assert stocked("audit", "list", "--since", "2999-01-01")[1] == "nothing yet\n"


def test_a_bundle_is_exported_and_shown(stocked: Run, tmp_path: Path) -> None:
    path = tmp_path / "gate.bundle"
    assert stocked("bundle", "export", "-o", str(path))[0] == 0
    shown = _json(stocked("bundle", "show", str(path), "--format", "json"))
    assert (shown["revision"], shown["targets"], shown["entries"]) == (1, 4, 10)
    path.write_bytes(path.read_bytes()[:-50])
    status, _, err = stocked("bundle", "show", str(path))
    assert (status, "truncated" in err) == (2, True)
    assert stocked("bundle", "export", "-o", str(tmp_path / "none" / "x"))[0] == 2


def test_the_database_is_made_upgraded_and_named(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "gate.db"
    assert run("db", "path")[1] == f"{path}\n"
    assert not path.exists()
    status, out, _ = run("db", "status")
    assert (status, "does not exist; create it with compatgate db upgrade" in out) == (1, True)
    assert not path.exists()
    assert f"empty -> {tables.expected_version()}" in run("db", "upgrade")[1]
    status, out, _ = run("db", "status", "--format", "json")
    assert (status, json.loads(out)["schema"]) == (0, tables.expected_version())
    other = tmp_path / "other.db"
    assert run("db", "upgrade", "--database", f"sqlite:///{other}")[0] == 0
    assert other.exists()


def test_a_database_that_is_not_there_is_no_decision(run: Run) -> None:
    status, _, err = run("matrix", "list", "--database", "postgresql://x:secret@127.0.0.1:9/y")
    assert status == 3
    assert "does not answer" in err
    assert "secret" not in err


@pytest.mark.parametrize(
    "words",
    [
        ("audit", "verify"),
        ("matrix", "list"),
        ("token", "list"),
        ("target", "list"),
        ("bundle", "export", "-o", "-"),
        ("check", "--target", "prod", "--stack", "cuda=12.4"),
        ("env", "--target", "prod"),
    ],
)
def test_a_database_that_is_named_to_be_read_and_is_not_there_is_not_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    path = tmp_path / "typo" / "gate.db"
    assert main([*words, "--database", str(path)]) == 2
    assert f"{path} does not exist" in capsys.readouterr().err
    assert not path.parent.exists()


def test_a_name_that_is_far_from_all_is_answered_with_some_that_there_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "target.yaml"
    file.write_text(
        "apiVersion: compatgate.dev/v1\nkind: Target\nmetadata: {name: prod}\n"
        "spec: {pools: [{name: a, gpu: L4, driver: 570.124.06}]}\n"
    )
    database = ("--database", str(tmp_path / "gate.db"))
    assert main(["matrix", "import", str(file), *database]) == 0
    assert main(["target", "show", "zzz", *database]) == 2
    assert "target 'zzz' does not exist (known: prod)" in capsys.readouterr().err
