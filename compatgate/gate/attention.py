"""What needs attention now: everything about to stop working, or that already has. Pure."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from datetime import date, datetime, timedelta
from typing import Literal

import msgspec
from msgspec import Struct

from compatgate.core.evaluate import evaluate
from compatgate.core.rules.driver_branch import driver_branch_eol
from compatgate.core.stack import Stack
from compatgate.core.target import Pool, Target
from compatgate.gate.freshness import freshness
from compatgate.gate.heatmap.fits import Fits
from compatgate.gate.snapshot import Snapshot
from compatgate.gate.waiving import countdowns
from compatgate.store.run_rows import RunRow

Level = Literal["fail", "warn"]
About = Literal["target", "entry", "waiver", "run", "baseline", "drift"]
_LEVELS: tuple[Level, ...] = ("fail", "warn")
_LATELY = timedelta(days=1)
_RUNS: dict[str, Level] = {
    "failed": "fail",
    "inconclusive": "warn",
    "error": "warn",
    "timeout": "warn",
}
_ENDED = {
    "failed": "failed",
    "inconclusive": "was inconclusive",
    "error": "could not be run",
    "timeout": "took too long",
}
_encode = msgspec.json.Encoder(order="sorted").encode


class Notice(Struct, frozen=True):
    """Something to look at.

    Attributes:
        about: what kind of thing, and ``name`` which one.
        message: what is the matter, one sentence.
    """

    level: Level
    about: About
    name: str
    message: str


def attention(snapshot: Snapshot, fits: Fits, now: datetime, seconds: float) -> list[Notice]:
    """What the matrix, the evidence and the facts say to look at, worst first.

    Args:
        snapshot: what answers rest on.
        fits: what facts say of entries; it remembers.
        now: for ends of life, waivers and the age of evidence.
        seconds: to evaluate entries that were not yet.
    """
    found = [
        *(Notice("fail", "target", name, f"cannot be used: {why}")
          for name, why in snapshot.unusable.items()),
        *_evidence(snapshot, now),
        *_broken(snapshot, fits, now, seconds),
        *_waivers(snapshot, now.date()),
        *_drivers(snapshot, now),
    ]  # fmt: skip
    return sorted(found, key=lambda notice: _LEVELS.index(notice.level))


def _evidence(snapshot: Snapshot, now: datetime) -> Iterator[Notice]:
    """Evidence that a policy asks for, and that failed, is stale or is missing."""
    for target in snapshot.targets.values():
        if not target.policy.canary.require:
            continue
        for one in freshness(target, snapshot.matrix.evidence, now.timestamp()):
            if one.required and one.state != "passed":
                level: Level = "fail" if one.state == "failed" else "warn"
                where = f"suite {one.suite} on {one.sku}, driver {one.driver}"
                yield Notice(level, "target", target.name, f"{where}: {one.why}")


def _broken(snapshot: Snapshot, fits: Fits, now: datetime, seconds: float) -> Iterator[Notice]:
    """Blessed entries that cannot work on a target by the vendors' facts."""
    deadline = time.monotonic() + seconds
    for target in snapshot.targets.values():
        for entry in snapshot.matrix.entries.of(target.name):
            if entry.status != "blessed":
                continue
            for pool in target.pools:
                driver = entry.components.get("driver")
                if not entry.is_for(pool) or (
                    driver and not (pool.driver and driver.allows(pool.driver))
                ):
                    continue
                fit = fits.known(entry, pool)
                if fit is None and time.monotonic() < deadline:
                    fit = fits.of(entry, pool, now)
                if fit is not None and fit.outcome == "fail":
                    message = f"is blessed, and cannot work on {target.name}: {fit.why}"
                    yield Notice("fail", "entry", entry.name, message)
                    break


def _waivers(snapshot: Snapshot, today: date) -> Iterator[Notice]:
    for one in countdowns(snapshot.matrix.waivers, today):
        if one.state == "soon":
            end = "today" if one.days == 0 else f"in {one.days} days"
            message = f"ends {end}; {one.waiver.owner} answers for it"
            yield Notice("warn", "waiver", one.waiver.name, message)


def _drivers(snapshot: Snapshot, now: datetime) -> Iterator[Notice]:
    """Driver branches past their end of life, or close to it, and GPUs that a driver is not for."""
    said: dict[tuple[str, str], str | None] = {}
    for target in snapshot.targets.values():
        messages = dict.fromkeys(_of_pool(snapshot, pool, now, said) for pool in target.pools)
        for message in filter(None, messages):
            yield Notice("warn", "target", target.name, message)


def _of_pool(
    snapshot: Snapshot, pool: Pool, now: datetime, said: dict[tuple[str, str], str | None]
) -> str | None:
    key = (pool.driver.text if pool.driver else "", pool.os)
    if key not in said:
        where = Target("", (pool,))
        verdict = evaluate(Stack({}), where, facts=snapshot.facts, now=now, with_fixes=False)
        found = [
            f.message
            for f in verdict.findings
            if f.rule == driver_branch_eol.id and f.outcome == "warn"
        ]
        said[key] = found[0] if found else None
    return said[key]


def of_runs(runs: Iterable[RunRow], now: datetime) -> Iterator[Notice]:
    """Runs of the last day that did not pass, unless the same was asked again and ended since.

    Args:
        runs: that have ended, newest first.
        now: for their age.
    """
    seen: set[bytes] = set()
    for run in runs:
        same = [
            run.suite,
            run.target,
            run.pool,
            run.entry,
            run.image,
            run.stack,
            run.gpu,
            run.driver,
        ]
        key = _encode(same)
        if run.state == "cancelled" or key in seen:
            continue
        seen.add(key)
        level = _RUNS.get(run.state)
        if level and run.finished_at and now - run.finished_at <= _LATELY:
            where = run.target or run.on_host or run.host or "its host"
            reason = f": {run.reason}" if run.reason else ""
            yield Notice(
                level, "run", run.id, f"{run.suite} on {where} {_ENDED[run.state]}{reason}"
            )


def counted(notices: Iterable[Notice]) -> dict[Level, int]:
    """How many of each level."""
    levels = [notice.level for notice in notices]
    return {level: levels.count(level) for level in _LEVELS}
