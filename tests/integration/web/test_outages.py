"""A running service decides on its last snapshot while its database is unavailable, and says so."""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from postgresql import Cluster
from serving import Answer, Server

from compatgate.resources import matrix_dir

QUESTION = {"target": "prod-a100", "stack": {"cuda": "12.4", "arch": ["sm_80"]}}
TARGET = {
    "apiVersion": "compatgate.dev/v1",
    "kind": "Target",
    "metadata": {"name": "new"},
    "spec": {"pools": [{"name": "p", "gpu": "L4", "driver": "580.95.05"}]},
}
POD = {
    "metadata": {"annotations": {"compatgate.dev/target": "prod-a100"}},
    "spec": {
        "containers": [
            {
                "name": "train",
                "image": "registry.example/team/app:1",
                "resources": {"limits": {"nvidia.com/gpu": "1"}},
            }
        ]
    },
}
on_postgresql = pytest.mark.postgresql
_PATIENCE = 20.0


def preview(server: Server, **headers: str) -> Any:
    answer = server.ask("POST", "/api/v1/gate/preview", QUESTION, headers)
    assert answer.status == 200, answer.body
    return answer.json()


DECIDED: list[str] = []


def decide(server: Server, **headers: str) -> Any:
    """Ask for a decision, which must be in the log one day."""
    answer = server.ask("POST", "/api/v1/gate", QUESTION, headers)
    assert answer.status == 200, answer.body
    DECIDED.append(answer.json()["id"])
    return answer.json()


def count_decisions(server: Server) -> int:
    return len(server.ask("GET", "/api/v1/decisions?limit=1000").json()["items"])


@pytest.fixture(autouse=True)
def _nothing_decided() -> None:
    DECIDED.clear()


def admit(server: Server) -> Any:
    """Ask as an API server with a timeout of 5 seconds; nothing is logged."""
    review = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "u-1",
            "operation": "CREATE",
            "namespace": "ml-train",
            "dryRun": True,
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "object": POD,
        },
    }
    answer = server.ask("POST", "/hooks/kubernetes/validate?timeout=5s", review)
    return answer.json()["response"]


def add_target(server: Server) -> Answer:
    headers = {**server.bearer, "X-Compatgate-Reason": "test"}
    return server.ask("POST", "/api/v1/targets", TARGET, headers)


def refuse_target(server: Server) -> str:
    """Return why a target is refused."""
    refused = add_target(server)
    assert (refused.status, refused.json()["field"]) == (503, "database")
    return str(refused.json()["detail"])


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def until_written(folder: Path) -> None:
    until(lambda: (folder / "confirmed.json").exists())
    time.sleep(0.2)


def health_s(server: Server) -> float:
    began = time.monotonic()
    assert server.ask("GET", "/healthz").status == 200
    return time.monotonic() - began


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """The state folder of the replica."""
    return tmp_path / "replica"


@pytest.fixture
def on_cluster(
    run_serve: Callable[..., Server], mortal_cluster: Cluster, state: Path
) -> Callable[..., Server]:
    """Starts the service on a server that may be killed."""

    def starting(*options: str) -> Server:
        fixed = ["--matrix", str(matrix_dir() / "examples"), "--state", str(state)]
        return run_serve("--database", mortal_cluster.url, *fixed, *options)

    return starting


@on_postgresql
def test_a_stopped_server_stops_changes_but_no_verdict_and_a_replica_starts_without_it(
    on_cluster: Callable[..., Server], mortal_cluster: Cluster, state: Path
) -> None:
    server = on_cluster()
    known = server.bearer
    before = decide(server)
    assert "degraded" not in before
    until_written(state)
    mortal_cluster.stop()
    try:
        until(lambda: "degraded" in decide(server))
        during = decide(server, **known)
        state_of_outage = during.pop("degraded")
        assert {**during, "decided_at": ""} == {**before, "decided_at": ""}
        assert "refused" in state_of_outage["reason"]
        assert 0 < state_of_outage["snapshot_age_s"] < 60
        warnings = admit(server)["warnings"]
        assert any("degraded" in line for line in warnings)
        assert "nothing was read or changed" in refuse_target(server)
        unknown = server.ask("POST", "/api/v1/gate", QUESTION, {"Authorization": "Bearer cg_other"})
        assert unknown.status == 503
        assert "cannot be checked now" in unknown.json()["detail"]
        assert b"compatgate_degraded 1.0" in server.ask("GET", "/metrics").body
        assert health_s(server) < 1
        ready = server.ask("GET", "/readyz")
        assert (ready.status, "degraded" in ready.json()) == (200, True)
        server.kill()

        second = on_cluster()
        assert "starting with the snapshot of" in "\n".join(second.log)
        assert decide(second)["id"] == before["id"]
        assert "degraded" in decide(second, **known)
    finally:
        mortal_cluster.start()
    until(lambda: "degraded" not in preview(second))
    until(lambda: count_decisions(second) == len(DECIDED))
    second.token = server.token
    assert add_target(second).status == 201
    shown = second.ask("POST", "/api/v1/gate", {**QUESTION, "target": "new"}, second.bearer)
    assert shown.status == 200
    stored = second.ask("GET", f"/api/v1/verdicts/{shown.json()['id']}")
    assert "degraded" not in stored.json()


@on_postgresql
def test_nobody_waits_for_a_silent_server(
    on_cluster: Callable[..., Server], mortal_cluster: Cluster, state: Path
) -> None:
    server = on_cluster()
    before = preview(server)["id"]
    longest: dict[str, float] = {}
    mortal_cluster.freeze()
    try:
        end = time.monotonic() + 8
        while time.monotonic() < end:
            for name, ask in (
                ("healthz", lambda: health_s(server)),
                ("preview", lambda: preview(server)),
                ("decision", lambda: decide(server)),
                ("admission", lambda: admit(server)),
                ("list", lambda: server.ask("GET", "/api/v1/decisions")),
                ("change", lambda: add_target(server)),
            ):
                began = time.monotonic()
                ask()
                longest[name] = max(longest.get(name, 0.0), time.monotonic() - began)
        during = preview(server)
        assert during["id"] == before
        assert re.search("has not answered|timeout expired", during["degraded"]["reason"])
        ready = server.ask("GET", "/readyz")
        assert (ready.status, "degraded" in ready.json()) == (200, True)
        assert add_target(server).status == 503
    finally:
        mortal_cluster.thaw()
    assert longest["healthz"] < 1
    assert longest["admission"] < 5
    assert max(longest["preview"], longest["decision"]) < 5
    assert max(longest["list"], longest["change"]) < 8
    until(lambda: "degraded" not in preview(server))
    until(lambda: count_decisions(server) == len(DECIDED))
    assert add_target(server).status == 201


@on_postgresql
def test_a_snapshot_older_than_the_operator_allows_decides_nothing(
    on_cluster: Callable[..., Server], mortal_cluster: Cluster, state: Path
) -> None:
    server, strict = on_cluster("--max-stale", "3s"), on_cluster("--max-stale", "0")
    mortal_cluster.stop()
    try:
        refused: list[Answer] = []

        def is_refused() -> bool:
            refused.append(server.ask("POST", "/api/v1/gate/preview", QUESTION))
            return refused[-1].status == 503

        until(is_refused)
        assert refused[0].status == 200
        problem = refused[-1].json()
        assert "the limit is 3 s" in problem["detail"]
        assert "--max-stale" in problem["hint"]
        ready = server.ask("GET", "/readyz")
        assert (ready.status, "the database" in ready.json()["detail"]) == (503, True)
        assert admit(server)["status"]["code"] == 503
        answer = strict.ask("POST", "/api/v1/gate/preview", QUESTION)
        assert answer.status == 503
        assert "--max-stale 0 allows no decision" in answer.json()["detail"]
    finally:
        mortal_cluster.start()
    until(lambda: server.ask("POST", "/api/v1/gate/preview", QUESTION).status == 200)


def test_a_deleted_file_is_noticed_and_never_becomes_an_empty_matrix(
    serve: Callable[..., Server], run_serve: Callable[..., Server], tmp_path: Path
) -> None:
    server = serve()
    file, aside = tmp_path / "gate.db", tmp_path / "aside.db"
    before = preview(server)["id"]
    until_written(tmp_path / "gate.db-state")
    file.rename(aside)
    until(lambda: "degraded" in preview(server))
    assert preview(server)["degraded"]["reason"] == f"the file {file} was deleted"
    assert decide(server)["id"] == before
    assert add_target(server).status == 503
    assert not file.exists()
    aside.rename(file)
    until(lambda: "degraded" not in preview(server))
    until(lambda: count_decisions(server) == len(DECIDED))
    server.stop()

    file.unlink()
    failing = serve(ready=False)
    said = failing.process.communicate(timeout=_PATIENCE)[1]
    assert failing.process.returncode == 2
    assert "had matrix revision 1" in said
    assert "restore a backup" in said
    assert "--start-empty" in said
    assert not file.exists()
    empty = run_serve("--database", str(file), "--start-empty")
    assert empty.ask("GET", "/readyz").json()["revision"] == 0


def test_a_replaced_file_waits_for_a_restart(serve: Callable[..., Server], tmp_path: Path) -> None:
    server = serve()
    file = tmp_path / "gate.db"
    before = preview(server)["id"]
    file.rename(tmp_path / "aside.db")
    sqlite3.connect(file).close()
    file.touch()
    until(lambda: "degraded" in preview(server))
    assert "was replaced" in preview(server)["degraded"]["reason"]
    assert preview(server)["id"] == before


def test_a_file_that_another_process_locks_still_answers(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    server = serve()
    before = preview(server)["id"]
    with sqlite3.connect(tmp_path / "gate.db", isolation_level=None) as other:
        other.execute("BEGIN EXCLUSIVE")
        for _ in range(5):
            time.sleep(0.3)
            assert decide(server)["id"] == before
            assert admit(server)["uid"] == "u-1"
            assert health_s(server) < 1
        assert "degraded" in decide(server)
        other.execute("ROLLBACK")
    other.close()
    until(lambda: count_decisions(server) == len(DECIDED))
    assert add_target(server).status == 201


def test_a_revoked_token_stays_refused_and_an_expired_one_ends_during_the_outage(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    server = serve()

    def make(name: str, **others: Any) -> dict[str, str]:
        body = {"name": name, "scopes": ["gate"], **others}
        made = server.ask("POST", "/api/v1/tokens", body, server.bearer)
        assert made.status == 201, made.body
        return {"Authorization": f"Bearer {made.json()['secret']}"}

    lasting, revoked = make("lasting"), make("revoked")
    short = make("short", expires="4s")
    ends = time.time() + 4
    server.ask("DELETE", "/api/v1/tokens/revoked", headers=server.bearer)
    until_written(tmp_path / "gate.db-state")
    (tmp_path / "gate.db").rename(tmp_path / "aside.db")
    until(lambda: "degraded" in preview(server))

    def status(headers: dict[str, str]) -> int:
        return server.ask("POST", "/api/v1/gate/preview", QUESTION, headers).status

    assert status(lasting) == 200
    assert status(revoked) == 401
    time.sleep(max(0.0, ends - time.time()))
    assert status(short) == 401
    secrets = [one["Authorization"].removeprefix("Bearer ") for one in (lasting, revoked, short)]
    kept = (tmp_path / "gate.db-state" / "snapshot.json").read_text()
    assert json.loads(kept.partition("\n")[2])["tokens"]
    assert not [secret for secret in secrets if secret in kept]
