"""The local database is asked through its own REST application, which nobody else may use."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from compatgate.errors import Unauthorized
from compatgate.kit.cli.options import LONGEST_REASON, reason_of, user_name
from compatgate.kit.database.database import ENVIRONMENT
from compatgate.resources import matrix_dir
from compatgate.service.app import open_rooms
from compatgate.service.gate.questions.decider import Decider
from compatgate.service.matrix.documents.service import MatrixService
from compatgate.web.app import create_app
from compatgate.web.local_gate import LocalClient
from compatgate.web.service import Settings

EXAMPLES = str(matrix_dir() / "examples")
TOKENS = "/api/v1/tokens"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def database(tmp_path: Path) -> str:
    return str(tmp_path / "gate.db")


@pytest.fixture
def run(command: Run, monkeypatch: pytest.MonkeyPatch, database: str) -> Run:
    """Run a command line on a database with the example matrix."""
    monkeypatch.setenv(ENVIRONMENT, database)
    monkeypatch.delenv("COMPATGATE_FACTS", raising=False)
    assert command("matrix", "import", EXAMPLES)[0] == 0
    return command


@pytest.fixture
def local(database: str) -> Iterator[LocalClient]:
    with LocalClient.open(database, make=True) as opened:
        yield opened


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


def test_the_application_opens_to_the_secret_of_its_process_alone(local: LocalClient) -> None:
    asking = create_app(local.rooms, Settings()).test_client()
    own: Any = local.rooms.tokens
    assert asking.get(TOKENS).status_code == 401
    assert asking.get(TOKENS, headers=bearer("cg_guessed")).status_code == 401
    assert asking.get(TOKENS, headers=bearer(own.own)).status_code == 200
    with pytest.raises(Unauthorized):
        own.verify("")


def test_a_server_of_the_same_database_does_not_know_that_secret(
    local: LocalClient, database: str
) -> None:
    own: Any = local.rooms.tokens
    served = open_rooms(database)
    asking = create_app(served, Settings()).test_client()
    assert asking.get(TOKENS, headers=bearer(own.own)).status_code == 401
    assert served.tokens.list().items == ()
    served.close()


def test_two_processes_draw_two_secrets(local: LocalClient, database: str) -> None:
    first: Any = local.rooms.tokens
    with LocalClient.open(database) as other:
        second: Any = other.rooms.tokens
        assert first.own != second.own


def test_a_decision_says_that_the_command_line_asked(run: Run) -> None:
    assert run("check", "--target", "prod-a100", "--stack", "cuda=12.4")[0] in (0, 1, 3)
    (row,) = json.loads(run("audit", "decisions", "--format", "json")[1])
    assert (row["asked_by"], row["source"]) == (f"cli:{user_name()}", "cli")


def test_a_change_is_its_authors_and_a_token_the_command_lines(run: Run) -> None:
    asked = ("matrix", "delete", "tf215-cu122", "--author", "Ada L.", "--reason", "gone")
    assert run(*asked)[0] == 0
    newest = json.loads(run("matrix", "log", "--limit", "1", "--format", "json")[1])[0]
    assert (newest["author"], newest["reason"]) == ("Ada L.", "gone")
    assert json.loads(run("matrix", "log", "1", "--format", "json")[1])["author"] == user_name()
    made = run("token", "create", "--name", "ci", "--scope", "read", "--format", "json")
    assert json.loads(made[1])["created_by"] == "command line"
    assert run("token", "revoke", "ci")[0] == 0
    links = json.loads(run("audit", "list", "--action", "token.", "--format", "json")[1])
    assert {link["actor"] for link in links} == {"command line"}


def test_neither_a_token_nor_a_proxy_of_the_environment_matters(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMPATGATE_TOKEN", "cg_of_another_gate")
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert run("token", "list")[0] == 0


def test_files_may_be_larger_than_a_servers_requests(run: Run, tmp_path: Path) -> None:
    document = (
        "apiVersion: compatgate.dev/v1\nkind: Entry\nmetadata: {name: large}\n"
        "spec: {targets: ['*'], components: {cuda: 12.4.*}, status: candidate}\n"
    )
    (tmp_path / "large.yaml").write_text(f"#{'x' * Settings().max_request_size}\n{document}")
    status, out, err = run("matrix", "import", str(tmp_path / "large.yaml"))
    assert (status, "+ Entry large" in out) == (0, True), err


def test_a_defect_is_no_gate_that_does_not_answer(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("of the code")

    monkeypatch.setattr(MatrixService, "list_entries", broken)
    status, out, err = run("matrix", "list")
    assert (status, out) == (2, "")
    assert err.startswith("error: unexpected RuntimeError: of the code (a defect in compatgate;")


def test_a_defect_lets_no_build_pass(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("of the code")

    monkeypatch.setattr(Decider, "decide", broken)
    asked = ("check", "--target", "prod-a100", "--stack", "cuda=12.4", "--fail-open")
    status, out, err = run(*asked)
    assert (status, out) == (2, ""), err


def test_what_a_command_gives_as_reason_fits_a_revision() -> None:
    said = reason_of(Namespace(reason=None), "matrix import " + "a\x07b.yaml " * 300)
    assert len(said) == LONGEST_REASON
    assert said.startswith("matrix import a\ufffdb.yaml")
    assert said.endswith("...")
    assert reason_of(Namespace(reason="why"), "matrix import") == "why"


def test_a_missing_target_names_the_database_and_the_way_to_a_gate(run: Run, database: str) -> None:
    status, _, error = run("check", "--target", "prod-a10", "--stack", "cuda=12.4")
    assert status == 2
    assert f"target 'prod-a10' does not exist in the database {database}" in error
    assert "did you mean prod-a100?; --server URL asks a gate" in error
    status, _, error = run("env", "--target", "prod-a10")
    assert (status, f"in the database {database}" in error) == (2, True)


def test_a_missing_database_names_the_way_to_a_gate(run: Run, tmp_path: Path) -> None:
    absent = str(tmp_path / "absent.db")
    status, _, error = run("check", "--target", "t", "--stack", "cuda=12.4", "--database", absent)
    assert (status, absent in error, "--server URL asks a gate" in error) == (2, True, True)


@pytest.mark.parametrize("action", ["import", "sync", "propose"])
def test_a_command_takes_an_unknown_suite_by_force_with_a_warning(
    run: Run, tmp_path: Path, action: str
) -> None:
    file = tmp_path / "lab.yaml"
    file.write_text(
        "{apiVersion: compatgate.dev/v1, kind: Target, metadata: {name: lab}, spec: {pools: [{name:"
        " p, gpu: L4, driver: 550.54.15}], policy: {canary: {suites: [dl-cor]}}}}\n"
    )
    status, _, error = run("matrix", action, str(file))
    assert (status, "did you mean dl-core" in error) == (2, True)
    status, _, error = run("matrix", action, str(file), "--force")
    assert status == 0, error
    assert error.startswith("warning: ")
    assert "nothing can run the suite 'dl-cor'" in error
