"""Describe upgrades, freezes and known-good states as plain data, for REST and pages."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec

from compatgate.core.upgrade_state import Wave
from compatgate.core.upgrades import Decision, decide, list_lacking
from compatgate.service.upgrades.models import FreezeRow, KnownGood, UpgradeOutline
from compatgate.service.upgrades.service import UpgradeView


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
