"""Show what needs attention, the worst first, and the keyboard shortcuts."""

from __future__ import annotations

from datetime import timedelta
from itertools import product
from typing import Any

import msgspec
from flask import request
from msgspec import Struct

from compatgate.core.incidents import KINDS, LEVELS, TITLES, IncidentKind, IncidentLevel
from compatgate.errors import NotFound
from compatgate.kit import clock
from compatgate.service.attention.notices.schemas import IncidentBody
from compatgate.service.attention.notices.service import Attention, member_link
from compatgate.web.page import HtmlPage, PageRequest, page

_DAYS = 14
_WEEK = 7
_MAX_DENIED = 8
_MAX_VERDICTS = 60
_MAX_UPGRADES = 5
_EACH_KIND = 4
"""Most incidents of a kind; its title links to all of them."""


class KindSection(Struct, frozen=True):
    """The incidents of one level and kind.

    Attributes:
        number: of all that need attention.
    """

    level: IncidentLevel
    kind: IncidentKind
    title: str
    leading: tuple[IncidentBody, ...]
    number: int


@page("/attention", nav="attention")
def show_attention(ask: PageRequest[Any]) -> HtmlPage:
    """Show incidents, upgrades in progress, and what is denied."""
    snapshot = ask.gate.snapshot()
    attention = ask.rooms.incidents.attention(_EACH_KIND)
    days = ask.rooms.decisions.decisions_per_day(_DAYS)
    levels = {
        level: sum(counts.get(level, 0) for counts in attention.counts.values()) for level in LEVELS
    }
    context = {
        "sections": arrange_incidents(attention),
        "attention": attention,
        "levels": levels,
        "member_link": member_link,
        "targets": len(snapshot.documents),
        "nodes": sum(pool.count for t in snapshot.targets.values() for pool in t.pools),
        "counted": days,
        "today": days.bars[-1],
        "denied": _list_denied_stacks(ask),
        "upgrades": ask.rooms.upgrades.list_open(limit=_MAX_UPGRADES),
    }
    return HtmlPage("attention.html", "Attention", context)


def arrange_incidents(attention: Attention) -> list[KindSection]:
    """Return incidents by level, the worst first, then in the order that a person on duty wants."""
    groups: dict[tuple[IncidentLevel, IncidentKind], list[IncidentBody]] = {}
    for row in attention.leading:
        groups.setdefault((row.level, row.kind), []).append(row)
    return [
        KindSection(level, kind, TITLES[kind], tuple(rows), attention.counts[kind][level])
        for level, kind in product(LEVELS, KINDS)
        if (rows := groups.get((level, kind)))
    ]


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
    stacks: dict[bytes, DeniedStack] = {}
    until = clock.now()
    since = until - timedelta(days=_WEEK)
    rows = ask.rooms.decisions.list_denied(since, until, limit=_MAX_VERDICTS)
    bodies = ask.rooms.decisions.read_verdicts([row.verdict_id for row in rows])
    for row in rows:
        verdict = bodies.get(row.verdict_id)
        if verdict is None:  # deleted since
            continue
        failing = [f for f in verdict["findings"] if f["outcome"] == verdict["verdict"]]
        why = f"{failing[0]['rule']} {failing[0]['message']}" if failing else ""
        key = msgspec.json.encode([row.target, verdict["stack"], verdict["pools"]])
        known = stacks.get(key)
        count = row.count + (known.count if known else 0)
        stacks[key] = DeniedStack(count, row.target, verdict["stack"], row.verdict_id, why)
    return sorted(stacks.values(), key=lambda one: -one.count)[:_MAX_DENIED]


@page("/keys", scope=None)
def show_keys(ask: PageRequest[Any]) -> HtmlPage:
    """Show the keyboard shortcuts."""
    return HtmlPage("keys.html", "Keys")


@page("/<path:rest>", scope=None)
def show_not_found(ask: PageRequest[Any]) -> HtmlPage:
    """Report that the page does not exist."""
    raise NotFound(f"unknown page: {request.path}", hint="choose a page from the menu")
