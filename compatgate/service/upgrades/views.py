"""Show upgrades: as plain data for REST, and arranged for a page, wave by wave."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct

from compatgate.core.upgrade_state import Need, NeedKind, Phase, Wave
from compatgate.core.upgrades import Decision, decide, list_lacking
from compatgate.kit.sections import Section
from compatgate.service.comparison.sections import arrange_causes
from compatgate.service.upgrades.models import FreezeRow, KnownGood, UpgradeOutline
from compatgate.service.upgrades.picture import Bar, draw_upgrade
from compatgate.service.upgrades.repository import split_key
from compatgate.service.upgrades.service import UpgradeView

MAX_DOMAINS = 8
"""Failure domains of a wave that a page shows."""
MAX_NODES = 20
_MAX_SINGLE = 3
_NAMES: dict[NeedKind, tuple[str, str]] = {
    "canary": ("canary", "canaries"),
    "entry": ("edited entry", "edited entries"),
    "pool": ("GPU of a pool", "GPUs of pools"),
}
TONES: dict[Phase, str] = {
    "proposed": "proposed",
    "canary": "warn",
    "soak": "busy",
    "wave": "running",
    "stopped": "warn",
    "rolled back": "fail",
    "done": "pass",
}
"""Badges of phases."""
PHASES: dict[Phase, str] = {
    "proposed": "proposed",
    "canary": "canary required",
    "soak": "soaks",
    "wave": "rolling",
    "stopped": "stopped",
    "rolled back": "rolled back",
    "done": "done",
}
"""Phases in words."""


class DomainView(Struct, frozen=True):
    """A failure domain of a wave; ``upgraded``: its nodes that report the driver."""

    name: str
    nodes: int
    upgraded: int

    @property
    def tone(self) -> str:
        """Return the badge."""
        return "pass" if self.upgraded == self.nodes else "running" if self.upgraded else "waiting"


class WaveView(Struct, frozen=True):
    """A wave as the page shows it.

    Attributes:
        state: in a word or two, with ``tone``, its badge.
        more: domains that are not shown.
        earliest: when it may start; None: it has, or that is not known.
        owed: what must be done before it starts, in a few words each.
        act: of a button: ``start``, ``go on``, or nothing.
        lacking: its nodes without the driver, cluster and name, once it has started.
    """

    wave: Wave
    state: str
    tone: str
    decision: Decision
    bars: tuple[Bar, ...]
    domains: tuple[DomainView, ...]
    more: int
    nodes: int
    upgraded: int
    earliest: datetime | None
    soaks_until: datetime | None
    owed: tuple[str, ...]
    act: str
    lacking: tuple[tuple[str, str], ...]


def arrange(view: UpgradeView, asker: str) -> dict[str, Any]:
    """Return what the page of an upgrade shows, and refreshes.

    Args:
        view: the upgrade as of now.
        asker: name of whoever looks.
    """
    row, known = view.row, view.known
    picture = draw_upgrade(row.upgrade, known.freezes, known.now, row.ended_at)
    parts = zip(row.upgrade.waves, picture.bars, picture.starts, strict=True)
    waves = [_arrange_wave(view, asker, wave, bars, start) for wave, bars, start in parts]
    return {
        "view": view,
        "tone": TONES[view.decision.phase],
        "picture": picture,
        "waves": waves,
        "needs": [(need, _list_waves(view, need)) for need in known.needs],
        "most": MAX_NODES,
        "stamp": _stamp(view, waves),
    }


def is_live(view: UpgradeView) -> bool:
    """Return whether the answer may still change."""
    watched = view.row.upgrade.watched_until
    return view.row.is_open or (watched is not None and watched > view.known.now)


def list_causes(view: UpgradeView) -> list[Section]:
    """Return what the plan said that breaks, by cause."""
    return arrange_causes(view.row.plan)


def _stamp(view: UpgradeView, waves: Sequence[WaveView]) -> str:
    """Return a text that changes with what is shown; the picture moves on each minute."""
    known = view.known
    minute = int(known.now.timestamp()) // 60
    shown = [
        minute, view.decision, known.problems, known.approvals, known.needs, known.freezes,
        [rate.words for rate in known.rates], view.good, view.row.approvals,
        [(one.state, one.domains, one.owed, one.act, one.decision, one.lacking) for one in waves],
    ]  # fmt: skip
    return hashlib.sha256(msgspec.json.encode(shown)).hexdigest()[:16]


def _arrange_wave(
    view: UpgradeView, asker: str, wave: Wave, bars: tuple[Bar, ...], start: datetime | None
) -> WaveView:
    found = decide(view.row.upgrade, view.known, wave.number, asker)
    state, tone = _name_state(view, wave, found)
    domains = _count_domains(view, wave)
    goes = found.answer == "start" and not wave.is_over
    lacking = list_lacking(wave, view.known) if wave.started and not wave.is_over else []
    return WaveView(
        wave,
        state,
        tone,
        found,
        bars,
        domains[:MAX_DOMAINS],
        max(0, len(domains) - MAX_DOMAINS),
        len(wave.expected),
        sum(one.upgraded for one in domains),
        start,
        wave.finished + timedelta(seconds=view.row.upgrade.soak_s) if wave.finished else None,
        tuple(_list_owed(view, wave)),
        ("go on" if wave.started else "start") if goes else "",
        tuple(map(split_key, lacking)),
    )


def _name_state(view: UpgradeView, wave: Wave, found: Decision) -> tuple[str, str]:
    """Return the state of a wave in words, and its badge."""
    upgrade, now = view.row.upgrade, view.known.now
    if not wave.expected:
        return "excluded", "cancelled"
    if found.answer == "roll back":
        return ("roll back", "fail") if wave.started else ("not started", "cancelled")
    if wave.finished:
        soaks = now < wave.finished + timedelta(seconds=upgrade.soak_s)
        return ("soaks", "busy") if soaks else ("done", "pass")
    if wave.started:
        own = decide(upgrade, view.known, wave.number, wave.holder or "")
        return ("rolling", "running") if own.answer == "start" else ("held", "warn")
    if found.answer == "start":
        return "may start", "ready"
    following = upgrade.next_wave is not None and upgrade.next_wave.number == wave.number
    return ("waits", "warn") if following else ("later", "queued")


def _count_domains(view: UpgradeView, wave: Wave) -> tuple[DomainView, ...]:
    """Return the domains of a wave, those in progress first; single nodes as one."""
    nodes = view.known.nodes
    members: dict[str, list[str]] = {}
    found: list[DomainView] = []
    for key in wave.expected:
        members.setdefault(view.row.domain_of.get(key, key), []).append(key)
    for name, keys in members.items():
        upgraded = sum(key in nodes and nodes[key].upgraded for key in keys)
        found.append(DomainView(name.removeprefix("node "), len(keys), upgraded))
    if len(found) > _MAX_SINGLE and all(one.nodes == 1 for one in found):
        upgraded = sum(one.upgraded for one in found)
        return (DomainView("single nodes", len(found), upgraded),)
    order = {"running": 0, "waiting": 1, "pass": 2}
    return tuple(sorted(found, key=lambda one: order[one.tone]))


def _list_owed(view: UpgradeView, wave: Wave) -> Iterator[str]:
    """Yield what a wave that has not started owes."""
    if wave.started or not wave.expected or not view.row.is_open:
        return
    if view.known.approvals:
        yield "approval"
    counts: dict[NeedKind, int] = {}
    for need in view.known.needs:
        if need.required and need.concerns(wave.pools):
            counts[need.kind] = counts.get(need.kind, 0) + 1
    for kind, count in counts.items():
        yield f"{count} {_NAMES[kind][count > 1]}"


def _list_waves(view: UpgradeView, need: Need) -> list[int]:
    """Return the numbers of the waves that a need concerns."""
    return [wave.number for wave in view.row.upgrade.waves if need.concerns(wave.pools)]


def summarize(row: UpgradeOutline) -> dict[str, Any]:
    """Return an upgrade as a list shows it."""
    return msgspec.structs.asdict(row)


def describe(view: UpgradeView) -> dict[str, Any]:
    """Return an upgrade with its waves, and what holds it."""
    row, known = view.row, view.known
    upgrade = row.upgrade
    return {
        **summarize(row.outline),
        "decision": describe_decision(view.decision),
        "soak_s": upgrade.soak_s,
        "health": upgrade.health,
        "accepts": list(row.accepts),
        "plan": row.plan,
        "wave_list": [_describe_wave(view, wave) for wave in upgrade.waves],
        "approvals": [one.actor for one in row.approvals],
        "missing_approvals": list(known.approvals),
        "needs": [
            {
                "text": need.text, "pools": list(need.pools), "required": need.required,
                "failed": need.failed,
            }
            for need in known.needs
        ],
        "rates": [
            {"text": one.words, "chance": one.chance, "alarm": one.is_alarm} for one in known.rates
        ],
        "freezes": [freeze.name for freeze in known.freezes],
        "left_out": dict(row.left_out),
        "events": [
            {
                "at": one.at, "actor": one.actor, "action": one.action, "wave": one.wave,
                "text": one.text,
            }
            for one in row.events
        ],
        "known_good": describe_good(view.good) if view.good else None,
    }  # fmt: skip


def describe_decision(decision: Decision) -> dict[str, Any]:
    """Return the answer about a wave."""
    return {
        "answer": decision.answer,
        "wave": decision.wave,
        "phase": decision.phase,
        "reasons": list(decision.reasons),
        "retry_after": decision.retry_after,
    }


def describe_answer(view: UpgradeView) -> dict[str, Any]:
    """Return whether a wave may start, and what whoever rolls it needs to know."""
    upgrade, decision = view.row.upgrade, view.decision
    wave = upgrade.waves[decision.wave - 1] if decision.wave else None
    good = view.good if decision.answer == "roll back" else None
    return {
        **describe_decision(decision),
        "upgrade": upgrade.name,
        "target": upgrade.target,
        "driver": upgrade.driver,
        "holder": wave.holder if wave else None,
        "held_until": wave.held_until if wave else None,
        "nodes": list_lacking(wave, view.known) if wave else [],
        "known_good": describe_good(good) if good else None,
    }


def _describe_wave(view: UpgradeView, wave: Wave) -> dict[str, Any]:
    upgrade, nodes = view.row.upgrade, view.known.nodes
    found = decide(upgrade, view.known, wave.number)
    return {
        "number": wave.number,
        "pools": list(wave.pools),
        "domains": [
            {"name": name, "nodes": count} for name, count in view.row.domains[wave.number]
        ],
        "nodes": len(wave.nodes),
        "upgraded": sum(key in nodes and nodes[key].upgraded for key in wave.expected),
        "left_out": len(wave.left_out),
        "started_at": wave.started,
        "finished_at": wave.finished,
        "soaks_until": _soak_end(wave, upgrade.soak_s),
        "holder": wave.holder,
        "answer": found.answer,
        "reasons": list(found.reasons),
    }


def _soak_end(wave: Wave, soak_s: int) -> datetime | None:
    return wave.finished + timedelta(seconds=soak_s) if wave.finished else None


def describe_good(good: KnownGood) -> dict[str, Any]:
    """Return a known-good state."""
    return {
        "target": good.target,
        "revision": good.revision,
        "drivers": dict(good.drivers),
        "upgrade": good.upgrade,
        "marked_at": good.marked_at,
    }


def describe_freeze(freeze: FreezeRow) -> dict[str, Any]:
    """Return a freeze."""
    return {
        "name": freeze.name,
        "targets": list(freeze.targets),
        "since": freeze.since,
        "until": freeze.until,
        "owner": freeze.owner,
        "reason": freeze.reason,
        "made_by": freeze.made_by,
        "made_at": freeze.made_at,
    }
