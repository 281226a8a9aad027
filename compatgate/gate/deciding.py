"""From a question's body to its verdict, on a snapshot; no database, no log."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec.structs import replace

from compatgate.core.evaluate import evaluate
from compatgate.core.request import Request, change_pool, parse_request
from compatgate.core.target import Target
from compatgate.core.verdict import Verdict
from compatgate.gate.snapshot import Snapshot


def decide(body: Any, snapshot: Snapshot, now: datetime) -> Verdict:
    """The verdict on a question.

    Args:
        body: as ``POST /gate``.
        snapshot: what the answer rests on.
        now: for ends of life, waivers and the age of evidence.

    Raises:
        BadInput: names the field.
        NotFound: there is no such target.
    """
    request = parse_request(body, snapshot.facts.gpus)
    target = asked_target(request, snapshot)
    return evaluate(request.stack, target, facts=snapshot.facts, matrix=snapshot.matrix, now=now)


def asked_target(request: Request, snapshot: Snapshot) -> Target:
    """The target of a request, with its ``set`` applied to every pool.

    Raises:
        NotFound: there is no such target.
    """
    if request.pool is not None:
        return Target("", (request.pool,))
    target = snapshot.target(request.target or "")
    if not request.changes:
        return target
    gpus = snapshot.facts.gpus
    pools = tuple(change_pool(pool, request.changes, gpus) for pool in target.pools)
    return replace(target, pools=pools)
