"""Deciding without a server.

Nothing is imported here before it is needed: a question about a pool must be answered quickly after
the program starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from compatgate.core.evaluate import evaluate
from compatgate.core.facts import Facts
from compatgate.core.request import parse_request
from compatgate.core.target import Target
from compatgate.core.verdict import Verdict
from compatgate.errors import BadInput

if TYPE_CHECKING:
    from pathlib import Path


def decide_pool(body: Mapping[str, Any], facts: Facts, *, now: datetime | None = None) -> Verdict:
    """Decide on a described pool, from facts alone: no server, no database, no log.

    Args:
        body: as ``POST /gate``, with ``pool``.
        facts: the catalog.
        now: None: the present.

    Raises:
        BadInput: names the field; so does a question about a target.
    """
    request = parse_request(body, facts.gpus)
    if request.pool is None:
        hint = "describe the pool, or give a server, a database or a bundle that knows the target"
        raise BadInput("facts alone know no targets", field="target", hint=hint)
    target = Target("", (request.pool,))
    return evaluate(request.stack, target, facts=facts, now=now or datetime.now(UTC))


def decide_local(
    body: Mapping[str, Any],
    database: str | None = None,
    *,
    asked_by: str = "local",
    source: str = "cli",
) -> Verdict:
    """Decide from a database, without a server; the decision is logged there.

    Args:
        body: as ``POST /gate``.
        database: URL or path; None: ``COMPATGATE_DATABASE``, else the user's data folder.
        asked_by: who asks.
        source: how.

    Raises:
        BadInput: names the field.
        NotFound: there is no such target.
        Unavailable: the database does not answer, or has another schema.
    """
    from compatgate.gate.service import Gate

    gate = Gate.open(database)
    try:
        return gate.decide(body, asked_by=asked_by, source=source)
    finally:
        gate.close()


def decide_bundle(
    body: Mapping[str, Any], path: str | Path, *, now: datetime | None = None
) -> Verdict:
    """Decide from a bundle, without server, database or log.

    Args:
        body: as ``POST /gate``.
        path: of the bundle's file.
        now: None: the present.

    Raises:
        BadInput: names the field; or the file is not a bundle, is damaged or was tampered with.
        NotFound: the bundle holds no such target.
    """
    from compatgate.gate.bundle import load_bundle
    from compatgate.gate.deciding import decide

    bundle = load_bundle(path)
    return decide(body, bundle.snapshot(), now or datetime.now(UTC))
