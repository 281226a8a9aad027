"""Blessed stacks that are verified again before anyone notices that they no longer hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct

from compatgate.canary.worker.verification import Shown
from compatgate.core.matrix import Entry, Evidence
from compatgate.core.stack import Stack
from compatgate.core.target import Pool, Target
from compatgate.gate.snapshot import Snapshot
from compatgate.store.run_rows import RunRow

_key = msgspec.json.Encoder(order="deterministic").encode


class Again(Struct, frozen=True):
    """When a run's like was last asked for again.

    Attributes:
        at: seconds since the epoch.
        underway: it has not ended.
    """

    at: int
    underway: bool


def asked_again(runs: Sequence[RunRow]) -> dict[bytes, Again]:
    """The latest verification of each like, from verification runs in any order."""
    found: dict[bytes, Again] = {}
    for run in runs:
        like = like_of(run)
        before = found.get(like)
        at = int(run.created_at.timestamp())
        underway = not run.has_ended or (before is not None and before.underway)
        found[like] = Again(max(at, before.at) if before else at, underway)
    return found


def like_of(run: RunRow) -> bytes:
    """What makes runs the same again."""
    return _key([run.suite, run.target, run.pool, run.stack, run.image])


def blessed(snapshot: Snapshot) -> Iterator[tuple[Entry, Evidence]]:
    """Each blessed entry with the latest passed run of each suite and SKU that it rests on.

    Only targets whose policy asks for evidence count; an entry without any passed run has none to
    repeat, and CG811 speaks of it.
    """
    seen: set[tuple[str, str]] = set()
    passed: dict[tuple[str, str], list[Evidence]] = {}
    for run in snapshot.matrix.evidence:
        if run.outcome == "passed":
            passed.setdefault((run.suite, run.sku), []).append(run)
    for target in snapshot.targets.values():
        if not target.policy.canary.require:
            continue
        for pool in target.pools:
            for entry in snapshot.matrix.entries.of(target.name):
                if entry.status != "blessed":
                    continue
                for run in _rests_on(entry, target, pool, passed):
                    if (entry.name, run.id) not in seen:
                        seen.add((entry.name, run.id))
                        yield entry, run


def shown(
    found: Sequence[tuple[Entry, Evidence]],
    runs: Mapping[str, RunRow],
    again: Mapping[bytes, Again],
) -> list[Shown]:
    """What `compatgate.canary.worker.verification.due` asks of.

    Args:
        found: as `blessed` gives it.
        runs: the runs of the evidence, by id.
        again: as `asked_again` gives it.
    """
    made = []
    for entry, evidence in found:
        run = runs.get(evidence.id)
        if run is None:
            continue
        last = again.get(like_of(run))
        made.append(
            Shown(
                run=evidence.id,
                entry=entry.name,
                suite=evidence.suite,
                sku=evidence.sku,
                finished=evidence.finished,
                tried=last.at if last else None,
                underway=bool(last and last.underway),
            )
        )
    return made


def _rests_on(
    entry: Entry, target: Target, pool: Pool, passed: Mapping[tuple[str, str], list[Evidence]]
) -> Iterator[Evidence]:
    if pool.gpu is None:
        return
    policy = target.policy.canary
    for suite in policy.suites:
        runs = [run for run in passed.get((suite, pool.gpu.sku), ()) if run.counts_for(policy)]
        about = [run for run in runs if entry.matches(Stack(run.components), pool)]
        if about:
            yield max(about, key=lambda run: run.finished)
