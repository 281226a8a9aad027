"""Say which changes of a target weaken what the gate enforces.

`FIELDS` classifies every field of a target. A field that it lacks fails a test, and counts as
weakening: nobody adds a field to the documents without deciding this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import UNSET, Struct
from msgspec.structs import fields

from compatgate.documents.quantities import parse_duration
from compatgate.documents.specs import PoolSpec, TargetDoc, WaiverPolicySpec

Weakens = Callable[[Any, Any], bool]
"""Return whether the second value enforces less than the first, which differs."""


def _always(before: object, after: object) -> bool:
    return True


def _never(before: object, after: object) -> bool:
    return False


def _below(*order: object) -> Weakens:
    """Compare by a list of values, the strictest first."""
    return lambda before, after: order.index(after) > order.index(before)


def _loses_any(before: Sequence[str], after: Sequence[str]) -> bool:
    return not set(before) <= set(after)


def _longer(before: str, after: str) -> bool:
    return parse_duration(after) > parse_duration(before)


def _waivers_last_longer(before: Any, after: Any) -> bool:
    usual = WaiverPolicySpec()
    old, new = (usual if one is UNSET else one for one in (before, after))
    return _longer(old.max_duration, new.max_duration)


_STRICT_FLAG = _below(True, False)
_LAX_FLAG = _below(False, True)
FIELDS: Final[Mapping[str, Weakens]] = {
    "apiVersion": _never,
    "metadata.name": _always,
    "metadata.labels": _never,
    "spec.pools.name": _always,
    "spec.pools.gpu": _always,
    "spec.pools.driver": _always,
    "spec.pools.os": _always,
    "spec.pools.cpu": _always,
    "spec.pools.count": _never,
    "spec.match.namespaces": _always,
    "spec.match.nodeLabels": _always,
    "spec.policy.mode": _below("enforce", "warn", "audit"),
    "spec.policy.requireEntry": _STRICT_FLAG,
    "spec.policy.canary.require": _STRICT_FLAG,
    "spec.policy.canary.maxAge": _longer,
    "spec.policy.canary.suites": _loses_any,
    "spec.policy.canary.acceptDevelopment": _LAX_FLAG,
    "spec.policy.canary.soak": _loses_any,
    "spec.policy.canary.promote": _below("approval", "automatic"),
    "spec.policy.canary.onFailure": _below("revoke", "warn"),
    "spec.policy.onUnknown": _below("fail", "warn", "allow"),
    "spec.policy.packages": _below("enforce", "audit"),
    "spec.policy.entries": _below("strict", "lenient"),
    "spec.policy.waivers": _waivers_last_longer,
}
"""Whether a change of a field weakens, by its path; pools compare by their names."""


def find_weakened(before: TargetDoc, after: TargetDoc) -> list[str]:
    """Return the paths of fields whose change weakens the target, in the order of the document.

    Pools that come or go weaken it: workloads may then run where nothing was checked, or are
    judged by other pools.
    """
    return list(dict.fromkeys(_walk("", before, after)))


def _walk(path: str, before: Any, after: Any) -> Iterator[str]:
    for field in fields(before):
        place = f"{path}.{field.encode_name}" if path else field.encode_name
        old, new = getattr(before, field.name), getattr(after, field.name)
        if old == new:
            continue
        if place == "spec.pools":
            yield from _walk_pools(place, old, new)
        elif isinstance(old, Struct) and isinstance(new, Struct) and place not in FIELDS:
            yield from _walk(place, old, new)
        elif FIELDS.get(place, _always)(old, new):
            yield place


def _walk_pools(path: str, before: Sequence[PoolSpec], after: Sequence[PoolSpec]) -> Iterator[str]:
    old, new = ({pool.name: pool for pool in pools} for pools in (before, after))
    if old.keys() != new.keys():
        yield path
    for name in old.keys() & new.keys():
        yield from _walk(path, old[name], new[name])
