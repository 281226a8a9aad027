"""What needs attention now."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import msgspec
from msgspec import Struct

from compatgate.errors import NotFound
from compatgate.gate.attention import Notice, attention, counted, of_runs
from compatgate.gate.heatmap.fits import fits_of
from compatgate.store import clock
from compatgate.web.ui.links import link
from compatgate.web.ui.page import Ask, Shown, page

_SECONDS = 0.05
_DAYS = 14
_WEEK = 7
_MOST = 8
_LOOKED_AT = 60
_RUNS = 60
"""Runs that are looked at: the newest that have ended."""
_SHOWN, _MOST_SHOWN = 25, 1000
_ROOMS = {
    "target": "targets",
    "entry": "entries",
    "waiver": "waivers",
    "run": "runs",
    "baseline": "baselines",
}


class HomeQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """How much of what needs attention to show."""

    all: Literal["yes"] | None = None


@page("/", nav="home", query=HomeQuery)
def show(ask: Ask[HomeQuery]) -> Shown:
    """The first page."""
    snapshot, now = ask.gate.snapshot(), clock.now()
    notices = attention(snapshot, fits_of(ask.gate.facts), now, _SECONDS)
    notices = [*_of_runs(ask), *notices, *_of_nodes(ask)]
    notices.sort(key=lambda one: one.level != "fail")
    shown = _MOST_SHOWN if ask.query.all else _SHOWN
    statuses = [entry.status for entry in snapshot.entries.values()]
    days = ask.gate.history.decisions_per_day(_DAYS)
    context = {
        "notices": notices[:shown],
        "everything": ask.query.all,
        "more": max(0, len(notices) - shown),
        "levels": counted(notices),
        "place": _place,
        "targets": len(snapshot.documents),
        "nodes": sum(pool.count for t in snapshot.targets.values() for pool in t.pools),
        "statuses": {name: statuses.count(name) for name in ("blessed", "candidate", "deprecated")},
        "entries": len(statuses),
        "counted": days,
        "today": days.days[-1],
        "denied": _denied(ask),
        "week": _WEEK,
    }
    return Shown("home.html", "Home", context)


def _place(notice: Notice) -> str:
    if notice.about == "drift":
        return link("drift", target=notice.name)
    return link(_ROOMS[notice.about], notice.name)


def _of_nodes(ask: Ask[Any]) -> Iterator[Notice]:
    """Where nodes are not what their targets declare, at most a minute ago."""
    for one in ask.gate.nodes.lately.drifted()[:_MOST]:
        yield Notice("warn", "drift", one.target, one.brief)


def _of_runs(ask: Ask[Any]) -> Iterator[Notice]:
    """What runs said against entries, and measurements that a person has to look at."""
    for warning in ask.gate.runs.warnings():
        yield Notice("fail", "entry", warning.entry, f"{warning.message} ({warning.run})")
    yield from of_runs(ask.gate.runs.list(state="ended", limit=_RUNS).items, clock.now())
    for one in ask.gate.baselines.list(state="proposed", limit=_MOST).items:
        message = f"{one.metric} of {one.workload} on {one.sku} waits for approval"
        yield Notice("warn", "baseline", str(one.id), message)


class Denied(Struct, frozen=True):
    """A stack that was denied on a target, in whichever images it came.

    Attributes:
        verdict: one of those that denied it, as it was given.
        why: the first reason.
    """

    count: int
    target: str | None
    stack: dict[str, Any]
    verdict: str
    why: str


def _denied(ask: Ask[Any]) -> list[Denied]:
    """The most denied stacks of the week; images of one stack are counted together."""
    found: dict[bytes, Denied] = {}
    for row in ask.gate.history.most_denied(_WEEK, limit=_LOOKED_AT):
        try:
            verdict = ask.gate.show_verdict(row.verdict_id)
        except NotFound:  # removed since
            continue
        said = [f for f in verdict["findings"] if f["outcome"] == verdict["verdict"]]
        why = f"{said[0]['rule']} {said[0]['message']}" if said else ""
        key = msgspec.json.encode([row.target, verdict["stack"], verdict["pools"]])
        known = found.get(key)
        count = row.count + (known.count if known else 0)
        found[key] = Denied(count, row.target, verdict["stack"], row.verdict_id, why)
    return sorted(found.values(), key=lambda one: -one.count)[:_MOST]
