"""Describe the answer of the solver: stacks that pass, what they change, and nearest misses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, structs

from compatgate.core.rule import REFUSING, Verdict
from compatgate.core.stack import Stack, parse_stack
from compatgate.core.versions import Version


class ChangedPart(Struct, frozen=True):
    """A part of the stack that a solution changes; None: the stack does not have it."""

    name: str
    before: str | None
    after: str | None


class Solution(Struct, frozen=True):
    """A stack that passes on every target."""

    stack: dict[str, Any]
    verdicts: tuple[Verdict, ...]  # the verdict of each target, in the order of the question
    changes: tuple[ChangedPart, ...]  # parts that differ from the stack to start from
    builds: tuple[str, ...] = ()  # packages that must be built for the stated GPU code

    def to_json(self) -> dict[str, Any]:
        """Return the form that answers carry."""
        ends = [verdict.valid_until for verdict in self.verdicts if verdict.valid_until]
        return {
            "stack": self.stack,
            "changes": [structs.asdict(change) for change in self.changes],
            "build": list(self.builds),
            "valid_until": min(ends, default=None),
            "verdicts": [_verdict_json(verdict) for verdict in self.verdicts],
        }


class Miss(Struct, frozen=True):
    """A stack that was refused, with the verdicts that say why."""

    stack: dict[str, Any]
    verdicts: tuple[Verdict, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the form that answers carry."""
        findings = [
            f
            for v in self.verdicts
            if not (v.allowed and v.verdict in ("pass", "warn"))
            for f in v.findings
        ]
        return {
            "stack": self.stack,
            "rules": sorted({one.rule for one in findings if one.outcome in REFUSING}),
            "verdicts": [_verdict_json(verdict) for verdict in self.verdicts],
        }


def _verdict_json(verdict: Verdict) -> dict[str, Any]:
    """Return the part of a verdict that an answer of the solver carries."""
    whole = verdict.to_json()
    kept = ("id", "verdict", "allowed", "target", "pools", "entries", "valid_until")
    findings = [one for one in whole["findings"] if one["outcome"] != "not-checked"]
    pools = [pool["name"] for pool in whole["pools"]]
    return {**{key: whole[key] for key in kept}, "pools": pools, "findings": findings}


class Solved(Struct, frozen=True):
    """The answer of the solver."""

    solutions: tuple[Solution, ...]
    # where there is no solution: the refused stacks with the fewest refusing rules
    misses: tuple[Miss, ...]
    unknown: tuple[str, ...]  # wanted parts of which no version is known, in words
    evaluated: int  # evaluations that the answer took
    complete: bool  # the search ended by itself; False: at its limit of work

    def to_json(self) -> dict[str, Any]:
        """Return the form that answers carry."""
        return {
            "found": bool(self.solutions),
            "stacks": [solution.to_json() for solution in self.solutions],
            "misses": [miss.to_json() for miss in self.misses],
            "unknown": list(self.unknown),
            "evaluated": self.evaluated,
            "complete": self.complete,
        }


def count_changes(base: Mapping[str, Version], body: Mapping[str, Any]) -> int:
    """Count the parts of a stack that a body states otherwise, or not at all."""
    if not base:
        return 0
    now = parse_stack(body).versions
    return sum(name not in now or not _same(base[name], now[name]) for name in base)


def _same(one: Version, other: Version) -> bool:
    """Tell whether two versions are one release of one build, where both name a build."""
    same_build = one.local == other.local or not (one.local and other.local)
    return one.key == other.key and same_build


def list_changes(base: Stack, body: Mapping[str, Any]) -> tuple[ChangedPart, ...]:
    """List the parts in which a body differs from a stack."""
    now, was = parse_stack(body).versions, base.versions
    found = []
    for name in dict.fromkeys((*was, *now)):
        before, after = was.get(name), now.get(name)
        if not (before and after and _same(before, after)):
            texts = [one.text if one else None for one in (before, after)]
            found.append(ChangedPart(name, *texts))
    return tuple(found)
