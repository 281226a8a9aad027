"""CG801 to CG803: what this organisation has blessed."""

from __future__ import annotations

from collections.abc import Sequence

from compatgate.core import changes
from compatgate.core.case import Case
from compatgate.core.components import in_order
from compatgate.core.matrix import Entry
from compatgate.core.parts import VERSIONS
from compatgate.core.rules.base import NOT_APPLICABLE, PASS, Answer, Problem, rule

_NAMED = 3
"""GPUs of an entry that a message names."""


@rule("CG801", "not-blessed", cause="matrix", reads=VERSIONS)
def not_blessed(case: Case) -> Answer:
    """The target's policy asks for a blessed matrix entry, and none matches.

    An entry matches when every component that it constrains is in the stack (or is the pool's
    driver) and meets the constraint, and the pool's GPU is one of its ``gpus``, if it names any: a
    MIG slice is another product than the whole GPU. The most specific match speaks; a candidate is
    not yet blessed.

    Under ``entries: strict`` an entry blesses a stack only if it names every GPU package of it,
    frameworks included; the message says which it leaves out. A revoked entry counts in any case.

    Fix: the nearest blessed entry, or propose one; name the packages in the entry, or waive the
    rule for them.

    Source: the matrix, at the revision that the verdict names.
    """
    if not case.policy.require_entry:
        return NOT_APPLICABLE
    best = case.deciding
    if best:  # revoked and deprecated speak for themselves
        unnamed = [] if best.status == "revoked" else case.unnamed(best)
        return (_unnamed(case, best, unnamed),) if unnamed else PASS
    where = f"{case.target.name or 'this target'}"
    if case.entries:
        best = case.entries[0]
        message = f"entry {best.name} matches but is a candidate: not yet blessed for {where}"
        return (
            Problem(
                "fail",
                "entry",
                message,
                have=best.name,
                need="status blessed",
                candidates=lambda: changes.nearest_entry(case),
            ),
        )
    nearest = None if case.brief else case.nearest
    message = f"no entry of the matrix matches this stack on {where}"
    if nearest:
        missing = in_order(nearest.differences(case.stack, case.pool))
        message += f"; the nearest is {nearest.name}, which {_difference(case, nearest, missing)}"
    suites = ", ".join(case.policy.canary.suites)
    message += f"; to bless it as it is, propose an entry and run suite {suites} on staging"
    return (
        Problem(
            "fail",
            "entry",
            message,
            need=_described(nearest) if nearest else "a blessed entry",
            candidates=lambda: changes.nearest_entry(case),
        ),
    )


def _unnamed(case: Case, entry: Entry, names: Sequence[str]) -> Problem:
    """Report an entry that matches and does not name every GPU package of the stack."""
    missing = in_order(names)
    listed = ", ".join(missing)
    stated = ", ".join(f'{name}: "=={case.stack.versions[name].text}"' for name in missing)
    return Problem(
        "fail",
        "entry",
        f"entry {entry.name} matches, but does not name {listed}; the policy says entries: strict:"
        f" add {stated} to the components of the entry, or waive CG801 for them",
        have=entry.name,
        need=f"an entry that names {listed}",
        candidates=lambda: changes.nearest_entry(case),
    )


@rule("CG802", "revoked", cause="matrix", reads=VERSIONS)
def revoked(case: Case) -> Answer:
    """The best matching entry was revoked: this combination is known to be bad here.

    Fix: the entry's replacement, or the nearest blessed entry.

    Source: the matrix, at the revision that the verdict names.
    """
    best = case.deciding
    if best is None:
        return NOT_APPLICABLE
    if best.status != "revoked":
        return PASS
    return (_status_problem(case, best, "fail"),)


@rule("CG803", "deprecated", cause="matrix", reads=VERSIONS)
def deprecated(case: Case) -> Answer:
    """The best matching entry is deprecated (a warning).

    Fix: the entry's replacement.

    Source: the matrix, at the revision that the verdict names.
    """
    best = case.deciding
    if best is None:
        return NOT_APPLICABLE
    if best.status != "deprecated":
        return PASS
    return (_status_problem(case, best, "warn"),)


def _status_problem(case: Case, entry: Entry, outcome: str) -> Problem:
    reason = f": {entry.reason}" if entry.reason else ""
    instead = f"; use {entry.replacement} instead" if entry.replacement else ""
    return Problem(
        outcome,  # type: ignore[arg-type]
        "entry",
        f"entry {entry.name} is {entry.status}{reason}{instead}",
        have=entry.name,
        need=entry.replacement or "a blessed entry",
        candidates=lambda: changes.nearest_entry(case, replacing=entry),
    )


def _difference(case: Case, entry: Entry, names: Sequence[str]) -> str:
    """Say what an entry has otherwise, and what it asks for that the stack leaves unsaid."""
    unsaid = [name for name in names if name != "driver" and case.stack.get(name) is None]
    other = [name for name in names if name not in unsaid]
    parts = []
    if not entry.is_for(case.pool):
        gpus = ", ".join(entry.gpus[:_NAMED]) + (", ..." if len(entry.gpus) > _NAMED else "")
        parts.append(f"is for {gpus}, not for {case.pool.gpu.sku if case.pool.gpu else 'this GPU'}")
    if other:
        parts.append(f"differs in {', '.join(other)}")
    if left_out := case.unnamed(entry):
        parts.append(f"does not name {', '.join(in_order(left_out))}")
    if unsaid:
        parts.append(f"asks for {', '.join(unsaid)}, of which the stack says nothing")
    return " and ".join(parts)


def _described(entry: Entry) -> str:
    return ", ".join(f"{name} {entry.components[name]}" for name in in_order(entry.components))
