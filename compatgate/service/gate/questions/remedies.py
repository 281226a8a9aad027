"""Find what turns a stored denial into an allowed stack: changes, or a waiver of what denies.

Everything is evaluated on today's matrix; nothing is stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any

from msgspec import Struct

from compatgate.core.constraints import parse_constraint
from compatgate.core.matrix import Waiver
from compatgate.core.remedies import Remedy, find_remedies, make_judge
from compatgate.core.request import Target, parse_pool
from compatgate.core.rule import REFUSING, Verdict
from compatgate.core.stack import parse_stack
from compatgate.errors import BadInput
from compatgate.kit import clock
from compatgate.service.matrix.documents.waivers import (
    draft_waiver_form,
    parse_components,
    split_words,
)
from compatgate.service.matrix.snapshots.snapshot import Snapshot

_WAIVER_DAYS = 7


class Resolution(Struct, frozen=True):
    """What allows a stack that was denied.

    Attributes:
        remedies: changes that end in *allowed*, the smallest first.
        waiver: fields of the form of a waiver; empty: no waiver covers anything.
        uncovered: findings that deny in spite of this waiver, as ``CG901 gpu-code: message``.
    """

    is_allowed: bool = False
    remedies: tuple[Remedy, ...] = ()
    waiver: dict[str, str] = {}
    uncovered: tuple[str, ...] = ()


def resolve_verdict(snapshot: Snapshot, verdict: Mapping[str, Any]) -> Resolution:
    """Return what allows the stack of a stored verdict; the drafted waiver lasts a week."""
    if verdict["verdict"] not in REFUSING:
        return Resolution()
    try:
        target = _find_target(snapshot, verdict)
        stack = parse_stack(verdict["stack"], image=verdict["image"])
    except BadInput:  # of another version
        target = None
    if target is None:
        return Resolution()
    basis: Any = {"facts": snapshot.facts, "now": clock.now()}
    judge = make_judge(stack, target, matrix=snapshot.matrix, **basis)
    now = judge({})
    if _is_resolved(now):
        return Resolution(is_allowed=True)
    remedies = tuple(find_remedies(judge))
    fields = draft_waiver_form(now.to_json(), target.policy.on_unknown)
    if not (
        fields["targets"] and fields["rules"] and (fields.get("image") or fields["components"])
    ):
        return Resolution(remedies=remedies)
    expires = clock.today() + timedelta(days=_WAIVER_DAYS)
    waivers = (*snapshot.matrix.waivers, _read_waiver(fields, expires))
    after = make_judge(stack, target, matrix=snapshot.matrix.replace(waivers=waivers), **basis)({})
    denying = () if _is_resolved(after) else after.findings
    return Resolution(
        remedies=remedies,
        waiver=fields,
        uncovered=tuple(
            f"{one.rule} {one.name}: {one.message}"
            for one in denying
            if one.outcome == "fail" or (one.outcome == "unknown" and not after.allowed)
        ),
    )


def _is_resolved(verdict: Verdict) -> bool:
    """Tell whether nothing is left to do; a policy that only warns allows what fails."""
    return verdict.verdict not in REFUSING or (verdict.allowed and verdict.mode == "enforce")


def _find_target(snapshot: Snapshot, verdict: Mapping[str, Any]) -> Target | None:
    """Return the target as it is now; a described pool as it was."""
    if verdict["target"]:
        return snapshot.targets.get(verdict["target"])
    kept = ("gpu", "driver", "os", "cpu", "platform", "sharing", "node")
    pools = tuple(
        parse_pool({key: one[key] for key in kept if one.get(key)}, snapshot.facts.gpus)
        for one in verdict["pools"]
    )
    return Target("", pools) if pools else None


def _read_waiver(fields: Mapping[str, str], expires: date) -> Waiver:
    components = parse_components(fields.get("components", ""))
    return Waiver(
        name="draft",
        rules=tuple(split_words(fields["rules"])),
        targets=(fields["targets"],),
        owner="",
        reason="",
        expires=expires.isoformat(),
        image=fields.get("image"),
        components={name: parse_constraint(name, text) for name, text in components.items()},
    )
