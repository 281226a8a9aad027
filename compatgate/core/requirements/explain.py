"""The reason of an answer: what held, or what came closest, and what the host has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from compatgate.core.requirements.model import (
    PROPERTIES,
    Clause,
    Factor,
    Host,
    Requirement,
    shown,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

_CLOSEST = 3
"""How many clauses a reason names; a published requirement has up to 73."""


class Miss(Struct, frozen=True):
    """A clause that does not hold, and its first factor that does not."""

    clause: Clause
    factor: Factor
    left: int
    """How many factors had not held yet, this one included."""


def held(clause: Clause, host: Host) -> str:
    """Why a requirement is met: by which clause."""
    names = dict.fromkeys(factor.property for factor in clause.factors)
    known = [_having(name, host) for name in names if _stated(name, host) is not None]
    unknown = [name for name in names if _stated(name, host) is None]
    facts = [f"the host has {', '.join(known)}"] if known else []
    if unknown:
        verb = "is" if len(unknown) == 1 else "are"
        facts.append(f"{' and '.join(unknown)} {verb} not known, which {host.unknown}")
    return f"{shown(clause.text)} holds: {', and '.join(facts)}"


def nothing_asked(requirement: Requirement) -> str:
    """Why a requirement without clauses is met."""
    if not requirement.ignored:
        return "nothing is required"
    ignored = ", ".join(shown(factor) for factor in requirement.ignored[:_CLOSEST])
    known = f"it knows {', '.join(PROPERTIES)}, in lower case"
    return f"nothing is required: the Go toolkit ignores {ignored} ({known})"


def missed(misses: Sequence[Miss], host: Host) -> str:
    """Why a requirement is not met: the clauses that came closest, in the order written.

    Closest is the clause that failed nearest its end, then the one whose version is nearest the
    host's.
    """
    if len(misses) == 1:
        return f"{shown(misses[0].clause.text)} does not hold: {_failing(misses[0], host)}"
    ranked = sorted((miss.left, _distance(miss, host), at) for at, miss in enumerate(misses))
    closest = [misses[at] for at in sorted(at for _, _, at in ranked[:_CLOSEST])]
    named = ", ".join(f"{shown(miss.clause.text)} ({_failing(miss, host)})" for miss in closest)
    among = ":" if len(closest) == len(misses) else "; closest are"
    return f"none of {len(misses)} alternatives holds{among} {named}"


def _distance(miss: Miss, host: Host) -> int:
    # The last factor bounds the driver branch of a published clause from above.
    last = miss.clause.factors[-1]
    return abs(last.major - host.majors.get(last.property, 0))


def _failing(miss: Miss, host: Host) -> str:
    """What failed in a clause, in view of the host."""
    factor = miss.factor
    if factor.note:
        return factor.note
    which = f"{shown(factor.text)} fails, " if len(miss.clause.factors) > 1 else ""
    if _stated(factor.property, host) is None:
        return f"{which}the host's {factor.property} is not known, which {host.unknown}"
    return f"{which}the host has {_having(factor.property, host)}"


def _having(name: str, host: Host) -> str:
    return f"{name} {shown(_stated(name, host) or '')}"


def _stated(name: str, host: Host) -> str | None:
    value: str | None = getattr(host.stated, name)
    return value
