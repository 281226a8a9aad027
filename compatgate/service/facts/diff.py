"""Compare facts: find the verdicts on entries and recent decisions that other facts change."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.evaluate import evaluate
from compatgate.core.facts import Facts
from compatgate.core.matrix import Pool, Target
from compatgate.core.request import parse_pool
from compatgate.core.stack import parse_stack
from compatgate.core.verdict import RANK, Verdict
from compatgate.core.whatif import Side, facts_change
from compatgate.core.whatif_result import EntryChange
from compatgate.documents.specs import key_of
from compatgate.errors import CompatgateError
from compatgate.service.gate.snapshot import Snapshot, build

if TYPE_CHECKING:
    from compatgate.documents.sources import Source
    from compatgate.kit.database.database import Database

_POOL = ("name", "driver", "gpu", "os", "cpu", "count")


class DecisionChange(Struct, frozen=True):
    """A verdict that changes with the other facts.

    Attributes:
        times: number of decisions with the verdict.
        rules: with new or worse findings.
    """

    verdict_id: str
    target: str | None
    times: int
    before: str
    after: str
    allowed_before: bool
    allowed_after: bool
    rules: tuple[str, ...]
    stack: dict[str, Any]

    @property
    def is_worse(self) -> bool:
        """Tell whether the verdict gets worse."""
        return RANK[self.after] > RANK[self.before]

    def to_json(self) -> dict[str, Any]:
        """Return plain data for the command."""
        return {
            "verdict_id": self.verdict_id,
            "target": self.target,
            "times": self.times,
            "before": self.before,
            "after": self.after,
            "allowed_before": self.allowed_before,
            "allowed_after": self.allowed_after,
            "rules": list(self.rules),
            "stack": self.stack,
        }


class Replayed(Struct, frozen=True):
    """The result of a replay.

    Attributes:
        decisions: number of replayed decisions.
        asked: number of their verdicts.
        left: why a verdict could not be evaluated again, by verdict id.
    """

    decisions: int = 0
    asked: int = 0
    changes: tuple[DecisionChange, ...] = ()
    left: dict[str, str] = {}


def of_files(sources: Sequence[Source], before: Facts, after: Facts) -> tuple[Snapshot, Snapshot]:
    """Read matrix files, and resolve them with both sets of facts.

    Raises:
        ManyProblems: every mistake by the older facts, with file, line and path.
    """
    from compatgate.documents.read import read_documents

    documents = read_documents(sources, before.gpus)
    versions = [(*key_of(document), document, 0) for document in documents]
    return build(versions, before, 0), build(versions, after, 0)


def entries_by_target(
    before: Snapshot, after: Snapshot, now: datetime
) -> dict[str, tuple[EntryChange, ...]]:
    """Evaluate the entries in use on every target with the facts of both snapshots.

    A target that one snapshot cannot resolve is missing: `unusable` of the snapshot says why.
    """
    return {
        name: facts_change(
            Side(target, before.facts, before.matrix),
            Side(after.targets[name], after.facts, after.matrix),
            now,
        )
        for name, target in sorted(before.targets.items())
        if name in after.targets
    }


def replay(
    database: Database, before: Snapshot, after: Snapshot, now: datetime, *, most: int
) -> Replayed:
    """Evaluate the newest decisions again, with both sets of facts and the current matrix.

    Args:
        database: with the decisions.
        before: snapshot with the older facts.
        after: snapshot with the other facts.
        now: for ends of life, waivers and the age of evidence.
        most: number of decisions.
    """
    from compatgate.service.gate import repository as decisions

    times: dict[str, int] = {}
    bodies: dict[str, dict[str, Any]] = {}
    with database.reading() as session:
        cursor, count = None, 0
        while count < most:
            page = decisions.list_decisions(session, cursor=cursor, limit=min(most - count, 1000))
            for row in page.items:
                times[row.verdict_id] = times.get(row.verdict_id, 0) + 1
            count, cursor = count + len(page.items), page.next
            if cursor is None:
                break
        for name in times:
            bodies[name] = json.loads(decisions.verdict(session, name))
    changes, left = [], {}
    for name, body in bodies.items():
        try:
            pair = [_again(body, snapshot, now) for snapshot in (before, after)]
        except CompatgateError as error:
            left[name] = error.detail
            continue
        if change := _change(name, times[name], body, *pair):
            changes.append(change)
    changes.sort(key=lambda one: (RANK[one.before] - RANK[one.after], -one.times, one.verdict_id))
    return Replayed(count, len(bodies), tuple(changes), left)


def _again(body: dict[str, Any], snapshot: Snapshot, now: datetime) -> Verdict:
    """Evaluate the stack and the pools of a verdict by the target's current policy."""
    stack = parse_stack(body["stack"], image=body.get("image"))
    known = snapshot.targets.get(body["target"] or "")
    pools = tuple(_pool(stored, known, snapshot.facts) for stored in body["pools"])
    target = replace(known, pools=pools) if known else Target("", pools)
    return evaluate(
        stack, target, facts=snapshot.facts, matrix=snapshot.matrix, now=now, with_fixes=False
    )


def _pool(stored: dict[str, Any], target: Target | None, facts: Facts) -> Pool:
    """Return the target's pool if it has not changed, else the pool of the verdict."""
    own = next((p for p in target.pools if p.name == stored["name"]), None) if target else None
    if own is not None:
        driver = own.driver.text if own.driver else None
        gpu = own.gpu.sku if own.gpu else None
        if (driver, gpu, own.os) == (stored["driver"], stored["gpu"], stored["os"]):
            return own
    return parse_pool({name: stored[name] for name in _POOL if stored.get(name)}, facts.gpus)


def _change(
    name: str, times: int, body: dict[str, Any], before: Verdict, after: Verdict
) -> DecisionChange | None:
    if (before.verdict, before.allowed) == (after.verdict, after.allowed):
        return None
    known = {(f.rule, f.component, f.outcome) for f in before.findings}
    rules = [f.rule for f in after.failing if (f.rule, f.component, f.outcome) not in known]
    return DecisionChange(
        name,
        body["target"],
        times,
        before.verdict,
        after.verdict,
        before.allowed,
        after.allowed,
        tuple(dict.fromkeys(rules)),
        body["stack"],
    )
