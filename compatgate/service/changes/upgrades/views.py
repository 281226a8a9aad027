"""Show upgrades: as REST carries them, and arranged for a page, wave by wave."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct

from compatgate.core.upgrade_state import NeedKind, Phase, Wave
from compatgate.core.upgrades import Decision, WaveDecision, decide, list_lacking
from compatgate.service.changes.comparison.sections import arrange_causes
from compatgate.service.changes.upgrades.repository import split_key
from compatgate.service.changes.upgrades.schemas import MayStartBody, UpgradeBody
from compatgate.service.changes.upgrades.service import UpgradeView

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
    "proposed": "proposed", "canary": "warn", "soak": "busy", "wave": "running",
    "stopped": "warn", "rolled back": "fail", "done": "pass",
}  # fmt: skip
"""Badges of phases."""
PHASES: dict[Phase, str] = {
    "proposed": "proposed", "canary": "canary required", "soak": "soaks", "wave": "rolling",
    "stopped": "stopped", "rolled back": "rolled back", "done": "done",
}  # fmt: skip
"""Phases in words."""
_DOMAIN_TONES = ("running", "waiting", "pass")
_SAME = [n for n in UpgradeBody.__struct_fields__ if n not in ("waves", "events", "approvals")]


def describe(view: UpgradeView) -> UpgradeBody:
    """Return an upgrade with its waves, and what holds it."""
    row, known = view.row, view.known
    body = {name: getattr(row, name) for name in _SAME if hasattr(row, name)}
    body |= {
        "waves": len(row.waves),
        "finished": sum(wave.is_over for wave in row.waves),
        "nodes": sum(len(wave.nodes) for wave in row.waves),
        "started_at": row.started_at or row.began,
        "decision": view.decision,
        "wave_list": [_describe_wave(view, wave) for wave in row.waves],
        "approvals": [one.actor for one in row.approvals],
        "missing_approvals": known.approvals,
        "needs": known.needs,
        "rates": [
            {"text": one.words, "chance": one.chance, "alarm": one.is_alarm} for one in known.rates
        ],
        "events": row.events,
        "known_good": view.good,
    }
    return msgspec.convert(body, UpgradeBody, from_attributes=True)


def _describe_wave(view: UpgradeView, wave: Wave) -> dict[str, Any]:
    answer = decide(view.row, view.known, wave.number)
    domains = Counter(view.row.domain_of[key] for key in wave.nodes)
    return {
        **{name: getattr(wave, name) for name in ("number", "pools", "holder")},
        **{name: getattr(answer, name) for name in ("answer", "reasons")},
        "domains": [{"name": name, "nodes": count} for name, count in domains.items()],
        "nodes": len(wave.nodes),
        "upgraded": _count_upgraded(view, wave.expected),
        "left_out": len(wave.left_out),
        "started_at": wave.started,
        "finished_at": wave.finished,
        "soaks_until": _soak_end(view, wave),
    }


def _count_upgraded(view: UpgradeView, keys: Iterable[str]) -> int:
    nodes = view.known.nodes
    return sum(key in nodes and nodes[key].upgraded for key in keys)


def _soak_end(view: UpgradeView, wave: Wave) -> datetime | None:
    return wave.finished + timedelta(seconds=view.row.soak_s) if wave.finished else None


def describe_answer(view: UpgradeView) -> MayStartBody:
    """Return whether a wave may start, and what whoever rolls it needs to know."""
    row, decision = view.row, view.decision
    wave = row.waves[decision.wave - 1] if decision.wave else None
    return MayStartBody(
        **{name: getattr(decision, name) for name in WaveDecision.__struct_fields__},
        upgrade=row.name,
        target=row.target,
        driver=row.driver,
        holder=wave.holder if wave else None,
        held_until=wave.held_until if wave else None,
        nodes=list_lacking(wave, view.known) if wave else [],
        known_good=view.good if decision.answer == "roll back" else None,
    )


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
    """A wave as the page shows it; ``act`` of its button: ``start``, ``go on``, or nothing."""

    wave: Wave
    state: str
    tone: str
    decision: Decision
    domains: tuple[DomainView, ...]
    more: int
    upgraded: int
    soaks_until: datetime | None
    owed: tuple[str, ...]
    act: str
    lacking: tuple[tuple[str, str], ...]


def arrange(view: UpgradeView, asker: str) -> dict[str, Any]:
    """Return what the page of an upgrade shows, and refreshes, for whoever looks.

    The stamp changes with what is shown, and each minute: the page names the time.
    """
    row, known = view.row, view.known
    waves = [_arrange_wave(view, asker, wave) for wave in row.waves]
    content = [
        int(known.now.timestamp()) // 60, view.decision, known.problems, known.approvals,
        known.needs, [rate.words for rate in known.rates], view.good,
        [one.identity for one in row.approvals],
        [(one.state, one.domains, one.owed, one.act, one.decision, one.lacking) for one in waves],
    ]  # fmt: skip
    return {
        "view": view,
        "tone": TONES[view.decision.phase],
        "waves": waves,
        "needs": [
            (need, [wave.number for wave in row.waves if need.concerns(wave.pools)])
            for need in known.needs
        ],
        "most": MAX_NODES,
        "causes": arrange_causes(row.plan),
        "live": row.is_open or (row.watched_until is not None and row.watched_until > known.now),
        "stamp": hashlib.sha256(msgspec.json.encode(content)).hexdigest()[:16],
    }


def _arrange_wave(view: UpgradeView, asker: str, wave: Wave) -> WaveView:
    answer = decide(view.row, view.known, wave.number, asker)
    state, tone = _name_state(view, wave, answer)
    domains = _count_domains(view, wave)
    goes = answer.answer == "start" and not wave.is_over
    lacking = list_lacking(wave, view.known) if wave.started and not wave.is_over else []
    return WaveView(
        wave=wave,
        state=state,
        tone=tone,
        decision=answer,
        domains=domains[:MAX_DOMAINS],
        more=max(0, len(domains) - MAX_DOMAINS),
        upgraded=sum(one.upgraded for one in domains),
        soaks_until=_soak_end(view, wave),
        owed=tuple(_list_owed(view, wave)),
        act=("go on" if wave.started else "start") if goes else "",
        lacking=tuple(map(split_key, lacking)),
    )


def _name_state(view: UpgradeView, wave: Wave, answer: Decision) -> tuple[str, str]:
    row, now = view.row, view.known.now
    if not wave.expected:
        return "excluded", "cancelled"
    if answer.answer == "roll back":
        return ("roll back", "fail") if wave.started else ("not started", "cancelled")
    if end := _soak_end(view, wave):
        return ("soaks", "busy") if now < end else ("done", "pass")
    if wave.started:
        own = decide(row, view.known, wave.number, wave.holder or "")
        return ("rolling", "running") if own.answer == "start" else ("held", "warn")
    if answer.answer == "start":
        return "may start", "ready"
    following = row.next_wave is not None and row.next_wave.number == wave.number
    return ("waits", "warn") if following else ("later", "queued")


def _count_domains(view: UpgradeView, wave: Wave) -> tuple[DomainView, ...]:
    """Return the domains of a wave, those in progress first; single nodes as one."""
    members: dict[str, list[str]] = {}
    for key in wave.expected:
        members.setdefault(view.row.domain_of.get(key, key), []).append(key)
    domains = [
        DomainView(name.removeprefix("node "), len(keys), _count_upgraded(view, keys))
        for name, keys in members.items()
    ]
    if len(domains) > _MAX_SINGLE and all(one.nodes == 1 for one in domains):
        upgraded = sum(one.upgraded for one in domains)
        return (DomainView("single nodes", len(domains), upgraded),)
    return tuple(sorted(domains, key=lambda one: _DOMAIN_TONES.index(one.tone)))


def _list_owed(view: UpgradeView, wave: Wave) -> Iterator[str]:
    if wave.started or not wave.expected or not view.row.is_open:
        return
    if view.known.approvals:
        yield "approval"
    needs = [need for need in view.known.needs if need.required and need.concerns(wave.pools)]
    for kind, count in Counter(need.kind for need in needs).items():
        yield f"{count} {_NAMES[kind][count > 1]}"
