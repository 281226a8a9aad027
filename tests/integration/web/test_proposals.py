"""A proposal from its first line to its revert, on two replicas of one PostgreSQL database."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from serving import Server, with_examples

from compatgate.service.app import open_rooms

API = "/api/v1"
STACK = {"cuda": "12.4", "arch": ["sm_80"]}
SOON_S = 0.9
"""Within a second, every worker answers by the new revision."""
QUESTIONS = 12
"""Of each replica, on connections of their own: both of its workers answer."""


def answers(replicas: tuple[Server, ...]) -> set[tuple[int, str]]:
    """Revision and driver by which the workers of every replica answer."""
    found = set()
    for server in replicas:
        for number in range(QUESTIONS):
            verdict = server.gate(STACK, image=f"r/a:{number}-{time.monotonic_ns()}").json()
            found.add((verdict["matrix_revision"], verdict["pools"][0]["driver"]))
    return found


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_a_merged_proposal_changes_every_worker_of_two_replicas_and_a_revert_restores_them(
    run_serve: Callable[..., Server], database_url: str, tmp_path: Any
) -> None:
    options = with_examples(tmp_path, ["--database", database_url, "--workers", "2"])
    first = run_serve(*options)
    second = run_serve(*options)
    rooms = open_rooms(database_url, overlays=[])
    who = {
        name: {"Authorization": f"Bearer {rooms.tokens.create(name, scopes, by='t').secret}"}
        for name, scopes in (
            ("ann", ["read", "propose"]),
            ("bob", ["read", "approve"]),
            ("kim", ["read", "bless"]),
        )
    }

    def ask(server: Server, name: str, method: str, path: str, **body: Any) -> Any:
        return server.ask(method, f"{API}/{path}", body or None, who[name])

    try:
        target = ask(first, "kim", "GET", "targets/prod-a100").json()
        before = target["spec"]["pools"][0]["driver"]
        policy = {**target["spec"]["policy"], "approvals": 3}
        document = {"metadata": target["metadata"], "spec": {**target["spec"], "policy": policy}}
        changed = ask(first, "kim", "PUT", "targets/prod-a100", **document, reason="three people")
        base = changed.json()["revision"]

        pools = [{"target": "prod-a100", "set": {"driver": "570.124.06"}}]
        made = ask(first, "ann", "POST", "proposals", pools=pools, base=base, reason="newer").json()
        path = f"proposals/{made['id']}"
        time.sleep(SOON_S)
        assert answers((first, second)) == {(base, before)}
        tested = ask(second, "ann", "POST", f"{path}/backtest", days=1).json()["backtest"]
        assert tested["decisions"] == 2 * QUESTIONS
        assert tested["counts"]["newly_denied"]["decisions"] == 0
        assert ask(second, "kim", "POST", f"{path}/merge", digest=made["digest"]).status == 409
        for server, name in ((second, "bob"), (first, "kim")):
            approved = ask(server, name, "POST", f"{path}/approve", digest=made["digest"]).json()
        assert approved["state"] == "approved"
        merged = ask(second, "kim", "POST", f"{path}/merge", digest=made["digest"]).json()
        time.sleep(SOON_S)
        assert answers((first, second)) == {(base + 1, "570.124.06")}

        body = {"propose": True, "reason": "jobs hang"}
        asked = ask(first, "ann", "POST", f"revisions/{merged['revision']}/revert", **body).json()
        path = f"proposals/{asked['proposal']}"
        digest = ask(first, "kim", "GET", path).json()["digest"]
        for name in ("bob", "kim"):
            said = {"digest": digest}
            assert ask(second, name, "POST", f"{path}/approve", **said).status == 200
        assert ask(first, "kim", "POST", f"{path}/merge", digest=digest).status == 200
        time.sleep(SOON_S)
        assert answers((first, second)) == {(base + 2, before)}
        report = rooms.chain.verify()
        assert report.ok, report.problems
    finally:
        rooms.close()
