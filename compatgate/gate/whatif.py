"""What if something of a target were another: everything in use there, before and after.

What a page or a hook asks before a driver is rolled out; nothing is logged, nothing is changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from compatgate.core.request import POOL_CHANGES, parse_changes
from compatgate.core.stack import canonical_key
from compatgate.core.target import Pool, Target
from compatgate.core.whatif import WhatIf
from compatgate.core.whatif import what_if as evaluate_change
from compatgate.documents.names import did_you_mean
from compatgate.errors import BadInput, NotFound
from compatgate.gate.snapshot import Snapshot


def what_if(
    snapshot: Snapshot,
    target: str,
    changes: Mapping[str, Any],
    now: datetime,
    *,
    pool: str | None = None,
) -> WhatIf:
    """What a change of a target would gain and lose, entry by entry, and why.

    Args:
        snapshot: what the answer rests on.
        target: by name.
        changes: as ``set`` of a question: ``driver gpu os cpu`` change the pools, every other key
            (``cuda``) each entry's stack.
        now: for ends of life, waivers and the age of evidence.
        pool: only this one changes; None: all of the target's.

    Raises:
        BadInput: nothing is changed, a malformed value, or an unknown component.
        NotFound: there is no such target, or no such pool.
        Unavailable: the target cannot be used with these facts.
    """
    found = snapshot.target(target)
    return evaluate_change(
        found,
        _pools(found, pool),
        _changes(changes),
        facts=snapshot.facts,
        matrix=snapshot.matrix,
        now=now,
    )


def _changes(body: Mapping[str, Any]) -> dict[str, Any]:
    changes = {canonical_key(name): value for name, value in parse_changes(body).items()}
    if not changes:
        hint = 'like {"driver": "580.95.05"}'
        raise BadInput("nothing is changed", field="set", hint=hint)
    for name in POOL_CHANGES:
        if name in changes and changes[name] is None:
            raise BadInput("cannot be removed", field=f"set.{name}", hint="leave it out")
    return changes


def _pools(target: Target, name: str | None) -> tuple[Pool, ...]:
    if name is None:
        return target.pools
    found = tuple(pool for pool in target.pools if pool.name == name)
    if not found:
        hint = did_you_mean(name, [pool.name for pool in target.pools])
        problem = f"the target {target.name!r} has no pool {name!r}"
        raise NotFound(problem, field="pool", value=name, hint=hint)
    return found
