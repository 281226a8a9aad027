"""Show the home page with its notices, and the keyboard shortcuts."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from datetime import date, datetime, timedelta
from typing import Any, Literal

import msgspec
from flask import request
from msgspec import Struct

from compatgate.core.evaluate import evaluate
from compatgate.core.request import Pool, Target
from compatgate.core.rules.driver import driver_branch_eol
from compatgate.core.stack import Stack
from compatgate.errors import NotFound
from compatgate.kit import clock
from compatgate.kit.http.links import link
from compatgate.service.gate.snapshot import Snapshot
from compatgate.service.matrix.pairs import FitCache, shared_fit_cache
from compatgate.service.runs.evidence import assess_freshness
from compatgate.service.runs.models import RunRow
from compatgate.service.waivers.service import list_countdowns
from compatgate.service.web.page import HtmlPage, PageRequest, page

Level = Literal["fail", "warn"]
NoticeSubject = Literal["target", "entry", "waiver", "run", "baseline", "drift"]
_LEVELS: tuple[Level, ...] = ("fail", "warn")
_RUN_AGE = timedelta(days=1)
_RUN_LEVELS: dict[str, Level] = {
    "failed": "fail",
    "inconclusive": "warn",
    "error": "warn",
    "timeout": "warn",
}
_RUN_TEXTS = {
    "failed": "failed",
    "inconclusive": "was inconclusive",
    "error": "could not be run",
    "timeout": "took too long",
}
_encode = msgspec.json.Encoder(order="sorted").encode


class Notice(Struct, frozen=True):
    """A notice on the home page.

    Attributes:
        about: kind of the object.
        name: of the object.
        message: one sentence.
    """

    level: Level
    about: NoticeSubject
    name: str
    message: str


def list_notices(snapshot: Snapshot, fits: FitCache, now: datetime, seconds: float) -> list[Notice]:
    """Return the notices of matrix, evidence and facts, worst first.

    Args:
        snapshot: with the matrix.
        fits: cache of outcomes by facts.
        now: for ends of life, waivers and the age of evidence.
        seconds: time to evaluate new entries.
    """
    found = [
        *(Notice("fail", "target", name, f"cannot be used: {why}")
          for name, why in snapshot.unusable.items()),
        *_evidence_notices(snapshot, now),
        *_entry_notices(snapshot, fits, now, seconds),
        *_waiver_notices(snapshot, now.date()),
        *_driver_notices(snapshot, now),
    ]  # fmt: skip
    return sorted(found, key=lambda notice: _LEVELS.index(notice.level))


def _evidence_notices(snapshot: Snapshot, now: datetime) -> Iterator[Notice]:
    """Yield notices on required evidence that failed, is stale or is missing."""
    for target in snapshot.targets.values():
        if not target.policy.canary.require:
            continue
        for one in assess_freshness(target, snapshot.matrix.evidence, now.timestamp()):
            if one.required and one.state != "passed":
                level: Level = "fail" if one.state == "failed" else "warn"
                where = f"suite {one.suite} on {one.sku}, driver {one.driver}"
                yield Notice(level, "target", target.name, f"{where}: {one.why}")


def _entry_notices(
    snapshot: Snapshot, fits: FitCache, now: datetime, seconds: float
) -> Iterator[Notice]:
    """Yield notices on blessed entries that the vendors' facts fail."""
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
                fit = fits.cached(entry, pool)
                if fit is None and time.monotonic() < deadline:
                    fit = fits.evaluate(entry, pool, now)
                if fit is not None and fit.outcome == "fail":
                    message = f"is blessed but cannot work on {target.name}: {fit.why}"
                    yield Notice("fail", "entry", entry.name, message)
                    break


def _waiver_notices(snapshot: Snapshot, today: date) -> Iterator[Notice]:
    for one in list_countdowns(snapshot.matrix.waivers, today):
        if one.state == "soon":
            end = "today" if one.days == 0 else f"in {one.days} days"
            message = f"ends {end}; owner: {one.waiver.owner}"
            yield Notice("warn", "waiver", one.waiver.name, message)


def _driver_notices(snapshot: Snapshot, now: datetime) -> Iterator[Notice]:
    """Yield notices on driver branches at or near their end of life."""
    said: dict[tuple[str, str], str | None] = {}
    for target in snapshot.targets.values():
        messages = dict.fromkeys(
            _driver_warning(snapshot, pool, now, said) for pool in target.pools
        )
        for message in filter(None, messages):
            yield Notice("warn", "target", target.name, message)


def _driver_warning(
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


def run_notices(runs: Iterable[RunRow], now: datetime) -> Iterator[Notice]:
    """Yield notices on runs of the last day that did not pass and were not repeated since.

    Args:
        runs: finished ones, newest first.
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
        level = _RUN_LEVELS.get(run.state)
        if level and run.finished_at and now - run.finished_at <= _RUN_AGE:
            where = run.target or run.on_host or run.host or "its host"
            reason = f": {run.reason}" if run.reason else ""
            yield Notice(
                level, "run", run.id, f"{run.suite} on {where} {_RUN_TEXTS[run.state]}{reason}"
            )


def count_levels(notices: Iterable[Notice]) -> dict[Level, int]:
    """Count notices by level."""
    levels = [notice.level for notice in notices]
    return {level: levels.count(level) for level in _LEVELS}


_SECONDS = 0.05
_DAYS = 14
_WEEK = 7
_MOST_NOTICES = 8
_MOST_VERDICTS = 60
_LATEST_RUNS = 60
"""Most finished runs to check, the newest."""
_USUAL_NOTICES, _ALL_NOTICES = 25, 1000
_SUBJECT_PATHS = {
    "target": "targets",
    "entry": "entries",
    "waiver": "waivers",
    "run": "runs",
    "baseline": "baselines",
}


class HomeQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Options of the home page."""

    all: Literal["yes"] | None = None


@page("/", nav="home", query=HomeQuery)
def show_home(ask: PageRequest[HomeQuery]) -> HtmlPage:
    """Show the home page."""
    snapshot, now = ask.gate.snapshot(), clock.now()
    notices = list_notices(snapshot, shared_fit_cache(ask.gate.facts), now, _SECONDS)
    notices = [*_staging_notices(ask), *notices, *_node_notices(ask)]
    notices.sort(key=lambda one: one.level != "fail")
    shown = _ALL_NOTICES if ask.query.all else _USUAL_NOTICES
    statuses = [entry.status for entry in snapshot.entries.values()]
    days = ask.gate.history.decisions_per_day(_DAYS)
    context = {
        "notices": notices[:shown],
        "everything": ask.query.all,
        "more": max(0, len(notices) - shown),
        "levels": count_levels(notices),
        "place": _notice_link,
        "targets": len(snapshot.documents),
        "nodes": sum(pool.count for t in snapshot.targets.values() for pool in t.pools),
        "statuses": {name: statuses.count(name) for name in ("blessed", "candidate", "deprecated")},
        "entries": len(statuses),
        "counted": days,
        "today": days.days[-1],
        "denied": _list_denied_stacks(ask),
        "week": _WEEK,
    }
    return HtmlPage("home.html", "Home", context)


def _notice_link(notice: Notice) -> str:
    if notice.about == "drift":
        return link("drift", target=notice.name)
    return link(_SUBJECT_PATHS[notice.about], notice.name)


def _node_notices(ask: PageRequest[Any]) -> Iterator[Notice]:
    """Yield notices on drifted nodes, at most a minute old."""
    for one in ask.gate.nodes.lately.drifted()[:_MOST_NOTICES]:
        yield Notice("warn", "drift", one.target, one.brief)


def _staging_notices(ask: PageRequest[Any]) -> Iterator[Notice]:
    """Yield notices on runs that contradict entries, failed runs, and proposed baselines."""
    for warning in ask.gate.runs.warnings():
        yield Notice("fail", "entry", warning.entry, f"{warning.message} ({warning.run})")
    yield from run_notices(ask.gate.runs.list(state="ended", limit=_LATEST_RUNS).items, clock.now())
    for one in ask.gate.baselines.list(state="proposed", limit=_MOST_NOTICES).items:
        message = f"{one.metric} of {one.workload} on {one.sku} needs approval"
        yield Notice("warn", "baseline", str(one.id), message)


class DeniedStack(Struct, frozen=True):
    """A denied stack on a target, in any image.

    Attributes:
        verdict: id of one of the verdicts.
        why: first failing finding.
    """

    count: int
    target: str | None
    stack: dict[str, Any]
    verdict: str
    why: str


def _list_denied_stacks(ask: PageRequest[Any]) -> list[DeniedStack]:
    """Return the most denied stacks of the week; images with the same stack count together."""
    found: dict[bytes, DeniedStack] = {}
    for row in ask.gate.history.most_denied(_WEEK, limit=_MOST_VERDICTS):
        try:
            verdict = ask.gate.show_verdict(row.verdict_id)
        except NotFound:  # deleted since
            continue
        said = [f for f in verdict["findings"] if f["outcome"] == verdict["verdict"]]
        why = f"{said[0]['rule']} {said[0]['message']}" if said else ""
        key = msgspec.json.encode([row.target, verdict["stack"], verdict["pools"]])
        known = found.get(key)
        count = row.count + (known.count if known else 0)
        found[key] = DeniedStack(count, row.target, verdict["stack"], row.verdict_id, why)
    return sorted(found.values(), key=lambda one: -one.count)[:_MOST_NOTICES]


@page("/keys", scope=None)
def show_keys(ask: PageRequest[Any]) -> HtmlPage:
    """Show the keyboard shortcuts."""
    return HtmlPage("keys.html", "Keys")


@page("/<path:rest>", scope=None)
def show_not_found(ask: PageRequest[Any]) -> HtmlPage:
    """Report that there is no such page."""
    raise NotFound(f"there is no page {request.path}", hint="choose a page from the menu")
