"""Find revoked entries that a stack does not contradict, though it leaves out some of their parts.

A blessing needs every part to be stated and to match. A revocation is a warning of damage: leaving
out a part, or the label of a build, must not get round it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from compatgate.core.components import COMPONENTS, FRAMEWORKS
from compatgate.core.constraints import Constraint
from compatgate.core.matrix import Entry
from compatgate.core.versions import Version, parse_version

if TYPE_CHECKING:
    from compatgate.core.rule_context import RuleContext

_CUDA_LABEL = re.compile(r"cu\d+")
_PROGRAMS = frozenset(("torch", "tensorflow", "jax"))
"""A program is written for one of these: a stack that states one does not leave another out."""


def _spell(label: str) -> str:
    """Return a label in the spelling of wheels: ``cu.121`` (of ``cu-121``) and ``cuda121``."""
    return re.sub(r"cuda(?=\d)", "cu", label.replace(".", ""))


class Revocation(Struct, frozen=True):
    """A revoked entry that a stack matches, or may match."""

    entry: Entry
    # names of components that would settle it, each with what is known of it; empty: the stack
    # matches
    doubts: dict[str, str] = {}


def find_revocation(context: RuleContext) -> Revocation | None:
    """Return the revocation that decides; None: the stack contradicts every revoked entry.

    A more specific entry that matches decides before a revocation, as among matching entries. A
    certain revocation comes before a possible one.
    """
    target, index = context.target.name, context.matrix.entries
    best = context.deciding
    floor = index.rank(best, target) if best else None
    possible: Revocation | None = None
    for entry in index.revoked(target, context.stack):
        if floor is not None and index.rank(entry, target) < floor:
            break  # ranked: all others are less specific as well
        doubts = _compare(entry, context)
        if doubts is None:
            continue
        if not doubts:
            return Revocation(entry)
        possible = possible or Revocation(entry, doubts)
    return possible


def _compare(entry: Entry, context: RuleContext) -> dict[str, str] | None:
    """Return what is not known of the parts of an entry; None: one of them is another.

    A stack that states no part of the entry is not about it; the driver is the pool's.
    """
    parts = entry.components.keys() - {"driver"}
    if not entry.is_for(context.pool) or (parts and parts.isdisjoint(context.stack.versions)):
        return None
    doubts: dict[str, str] = {}
    for name, constraint in entry.components.items():
        have = context.driver if name == "driver" else context.stack.get(name)
        if have is not None and constraint.allows(have):
            continue
        doubt = (
            _find_missing(name, constraint, context)
            if have is None
            else _compare_label(name, have, constraint, context)
        )
        if doubt is None:
            return None
        if doubt:
            doubts[name] = doubt
    return doubts


def _find_missing(name: str, constraint: Constraint, context: RuleContext) -> str | None:
    """Return what is known of a part that the stack leaves out; None: it is absent, or another."""
    stack = context.stack
    if stack.content is not None and name != "driver":
        return None  # the image was read, and does not hold it
    for match in context.built:
        pin = match.build.pins.get(name) if match.build else None
        if pin and pin.floor is not None and pin.spec.startswith("=="):
            pinned = f"is not stated; {match.title} pins {pin.floor}"
            return pinned if constraint.allows(pin.floor) else None
    if stack.wheels and (name not in COMPONENTS or name in FRAMEWORKS):
        return None  # a lockfile lists every package
    if name in _PROGRAMS and not _PROGRAMS.isdisjoint(stack.components):
        return None
    return "is not stated"


def _compare_label(
    name: str, have: Version, constraint: Constraint, context: RuleContext
) -> str | None:
    """Return what is known of a build without a label; "": it is the build, None: it is another."""
    labels = [one.version.local for one in constraint.clauses if one.version.local]
    if have.local:
        spelled = [label for label in labels if _spell(label) == _spell(have.local)]
        allowed = (parse_version(name, f"{have.public}+{label}") for label in spelled)
        return "" if any(map(constraint.allows, allowed)) else None
    for label in labels:
        whole = parse_version(name, f"{have.text}+{label}")
        if not constraint.allows(whole):
            continue
        cuda = context.stack.get("cuda")
        if whole.cuda is not None and cuda is not None:
            if cuda.at(len(whole.cuda)) != whole.cuda:
                continue
            same = _CUDA_LABEL.fullmatch(label) and not context.stack.assumed
            return "" if same else "has no build label"
        if context.stack.content is None or whole.cuda is not None:
            return "has no build label"
    return None
