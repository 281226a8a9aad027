"""What needs attention now."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from compatgate.errors import NotFound
from compatgate.gate.attention import Notice, attention, counted
from compatgate.gate.heatmap.fits import fits_of
from compatgate.store import clock
from compatgate.store.denials import DeniedRow
from compatgate.web.ui.links import link
from compatgate.web.ui.page import Ask, Shown, page

_SECONDS = 0.05
_DAYS = 14
_WEEK = 7
_MOST = 8
_SHOWN = 25
_ROOMS = {
    "target": "targets",
    "entry": "entries",
    "waiver": "waivers",
    "run": "runs",
    "baseline": "baselines",
}


@page("/", nav="home")
def show(ask: Ask[Any]) -> Shown:
    """The first page."""
    snapshot, now = ask.gate.snapshot(), clock.now()
    notices = attention(snapshot, fits_of(ask.gate.facts), now, _SECONDS)
    notices = [*_of_runs(ask), *notices]
    statuses = [entry.status for entry in snapshot.entries.values()]
    days = ask.gate.history.decisions_per_day(_DAYS)
    context = {
        "notices": notices[:_SHOWN],
        "more": max(0, len(notices) - _SHOWN),
        "levels": counted(notices),
        "place": lambda notice: link(_ROOMS[notice.about], notice.name),
        "targets": len(snapshot.documents),
        "nodes": sum(pool.count for t in snapshot.targets.values() for pool in t.pools),
        "statuses": {name: statuses.count(name) for name in ("blessed", "candidate", "deprecated")},
        "entries": len(statuses),
        "counted": days,
        "today": days.days[-1],
        "denied": list(_denied(ask)),
        "week": _WEEK,
    }
    return Shown("home.html", "Home", context)


def _of_runs(ask: Ask[Any]) -> Iterator[Notice]:
    """What runs said against entries, and measurements that a person has to look at."""
    for warning in ask.gate.runs.warnings():
        yield Notice("fail", "entry", warning.entry, f"{warning.message} ({warning.run})")
    for one in ask.gate.baselines.list(state="proposed", limit=_MOST).items:
        message = f"{one.metric} of {one.workload} on {one.sku} waits for approval"
        yield Notice("warn", "baseline", str(one.id), message)


def _denied(ask: Ask[Any]) -> Iterator[tuple[DeniedRow, dict[str, Any], str]]:
    """The most denied verdicts of the week, each with its stack and its first reason."""
    for row in ask.gate.history.most_denied(_WEEK, limit=_MOST):
        try:
            verdict = ask.gate.show_verdict(row.verdict_id)
        except NotFound:  # removed since
            continue
        said = [f for f in verdict["findings"] if f["outcome"] == verdict["verdict"]]
        yield row, verdict["stack"], f"{said[0]['rule']} {said[0]['message']}" if said else ""
