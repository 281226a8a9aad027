"""Say which changes of a target weaken what the gate enforces.

`FIELDS` classifies every field of a target. A field that it lacks fails a test, and counts as
weakening: nobody adds a field to the documents without deciding this.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import fields

from compatgate.documents.checks import is_within_limit
from compatgate.documents.quantities import parse_duration
from compatgate.documents.specs import (
    Document,
    EntryDoc,
    EntrySpec,
    MatchSpec,
    PolicySpec,
    TargetDoc,
    WaiverDoc,
    WaiverPolicySpec,
)

Weakens = Callable[[Any, Any], bool]
"""Return whether the second value enforces less than the first, which differs."""


def _always(before: object, after: object) -> bool:
    return True


def _never(before: object, after: object) -> bool:
    return False


def _below(*order: object) -> Weakens:
    return lambda before, after: order.index(after) > order.index(before)


def _loses_any(before: Sequence[str], after: Sequence[str]) -> bool:
    return not set(before) <= set(after)


def _longer(before: str, after: str) -> bool:
    return parse_duration(after) > parse_duration(before)


def _unstated(usual: Any, weakens: Weakens) -> Weakens:
    """Compare with a usual value in place of one that is not stated."""

    def compare(before: Any, after: Any) -> bool:
        return weakens(*(usual if one is UNSET else one for one in (before, after)))

    return compare


_STRICT_FLAG = _below(True, False)
_LAX_FLAG = _below(False, True)
FIELDS: Final[Mapping[str, Weakens]] = {
    "apiVersion": _never,
    "metadata.name": _always,
    "metadata.labels": _never,
    "metadata.owner": _never,
    "metadata.links": _never,
    "spec.pools.name": _always,
    "spec.pools.gpu": _always,
    "spec.pools.driver": _always,
    "spec.pools.os": _always,
    "spec.pools.cpu": _always,
    "spec.pools.count": _never,
    "spec.pools.platform": _always,
    "spec.pools.sharing": _always,
    "spec.pools.node": _always,
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
    "spec.policy.canary.imported": _always,
    "spec.policy.canary.assurance": _below("witnessed", "challenged", "self-reported"),
    "spec.policy.canary.onFailure": _below("revoke", "warn"),
    "spec.policy.canary.bind": _unstated("content", _below("image", "content", "versions")),
    "spec.policy.onUnknown": _below("fail", "warn", "allow"),
    "spec.policy.packages": _below("enforce", "audit"),
    "spec.policy.missingFacts": _below("enforce", "audit"),
    "spec.policy.entries": _below("strict", "lenient"),
    "spec.policy.statedStacks": lambda before, after: bool(before == "ignore"),
    "spec.policy.waivers": _unstated(
        WaiverPolicySpec(), lambda before, after: _longer(before.max_duration, after.max_duration)
    ),
    "spec.policy.approvals": _unstated(1, lambda before, after: bool(after < before)),
    "spec.policy.approvers": lambda before, after: (
        before is not UNSET and (after is UNSET or not set(after) <= set(before))
    ),
    "spec.policy.changes": lambda before, after: bool(before == "proposals"),
}
"""The tests whether a change of a field weakens, by its path; pools compare by their names."""


def loosens(before: Document | None, after: Document | None) -> bool:
    """Return whether an edit lets the gate allow more; where two people are asked for, they agree.

    Ending a waiver, and deprecating or revoking an entry, need no second person: in an emergency
    one is enough.
    """
    if isinstance(before, WaiverDoc) or isinstance(after, WaiverDoc):
        return isinstance(after, WaiverDoc) and not is_within_limit(before, after)
    if isinstance(before, EntryDoc) or isinstance(after, EntryDoc):
        old, new = (one.spec if isinstance(one, EntryDoc) else None for one in (before, after))
        return _entry_loosens(old, new)
    if isinstance(before, TargetDoc) and isinstance(after, TargetDoc):
        return bool(find_weakened(before, after))
    return before is not None


def takes_back(before: Document | None, after: Document | None) -> bool:
    """Return whether an edit only withdraws a permission: it never waits for a proposal.

    That is the end of a waiver, or of a part of its time, and an entry that is deprecated or
    revoked: what an emergency needs.
    """
    if isinstance(before, WaiverDoc):
        return not loosens(before, after)
    if isinstance(before, EntryDoc) and isinstance(after, EntryDoc):
        ends = after.spec.status in ("deprecated", "revoked")
        return ends and scope_of(before.spec) == scope_of(after.spec) and not loosens(before, after)
    return False


def _entry_loosens(before: EntrySpec | None, after: EntrySpec | None) -> bool:
    """Judge an entry: a blessed or deprecated one allows stacks, a revoked one denies them."""
    if after is None:
        return before is not None and before.status == "revoked"
    if before is None:
        return after.status in ("blessed", "deprecated")
    same = scope_of(before) == scope_of(after)
    if before.status == "revoked":
        return not (same and after.status == "revoked")
    if after.status in ("candidate", "revoked"):
        return False
    allowed_before = ("blessed",) if after.status == "blessed" else ("blessed", "deprecated")
    return not (same and before.status in allowed_before)


def scope_of(entry: EntrySpec) -> tuple[object, ...]:
    """Return what an entry is for; more of it allows more stacks."""
    return entry.targets, entry.components, entry.gpus, entry.needs


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
            old_pools, new_pools = ({pool.name: pool for pool in pools} for pools in (old, new))
            if old_pools.keys() != new_pools.keys():
                yield place
            for name in old_pools.keys() & new_pools.keys():
                yield from _walk(place, old_pools[name], new_pools[name])
        elif isinstance(old, Struct) and isinstance(new, Struct) and place not in FIELDS:
            yield from _walk(place, old, new)
        elif FIELDS.get(place, _always)(old, new):
            yield place


def is_stricter(policy: PolicySpec, other: PolicySpec) -> bool:
    """Return whether a policy asks for something that another one does not."""
    return policy != other and _is_stricter(_encode(policy), _encode(other))


_encode = msgspec.json.Encoder(order="deterministic").encode
_decode = msgspec.json.Decoder(PolicySpec).decode


@lru_cache(maxsize=4096)  # placement compares the policies of every pod's targets
def _is_stricter(policy: bytes, other: bytes) -> bool:
    return any(_walk("spec.policy", _decode(policy), _decode(other)))


def takes_pods(before: TargetDoc | None, after: TargetDoc, other: TargetDoc) -> bool:
    """Return whether an edit of a target may take pods from another target, and so weaken it.

    A new match does, and a policy that becomes strict enough to displace the other target.
    """
    if not overlaps(after.spec.match, other.spec.match):
        return False
    if before is None or before.spec.match != after.spec.match:
        return True
    policy = other.spec.policy
    return is_stricter(policy, before.spec.policy) and not is_stricter(policy, after.spec.policy)


def overlaps(match: MatchSpec, other: MatchSpec) -> bool:
    """Return whether a pod may belong to both targets.

    Nodes with the labels of both are nodes of both, whatever the namespace of the pod.
    """
    labels, others = match.node_labels, other.node_labels
    if any(others.get(key, value) != value for key, value in labels.items()):
        return False
    if labels and others:
        return True
    # Without namespaces a target is for every one if it has labels, else for no pod.
    here, there = (one.namespaces or ("*" if one.node_labels else "") for one in (match, other))
    return any(_may_share(glob, second) for glob in here for second in there)


_SET = re.compile(r"\[!?\]?[^\]]*\]")


def _may_share(glob: str, other: str) -> bool:
    """Return whether some name may fit both globs; a set of characters counts as any."""
    one, two = _SET.sub("?", glob), _SET.sub("?", other)
    seen: set[tuple[int, int]] = set()
    ahead = [(0, 0)]
    while ahead:
        first, second = place = ahead.pop()
        if place in seen:
            continue
        seen.add(place)
        left, right = one[first : first + 1], two[second : second + 1]
        if not left and not right:
            return True
        if left == "*":
            ahead += [(first + 1, second), (first, second + 1)] if right else [(first + 1, second)]
        elif right == "*":
            ahead += [(first, second + 1), (first + 1, second)] if left else [(first, second + 1)]
        elif left and right and (left == right or "?" in (left, right)):
            ahead.append((first + 1, second + 1))
    return False


def takes_approval(
    before: TargetDoc | None, after: TargetDoc, names: Callable[[str], bool]
) -> bool:
    """Return whether an edit makes somebody an approver in place of others, or the only one."""
    patterns = after.spec.policy.approvers
    if patterns is UNSET or "*" in patterns or not any(map(names, patterns)):
        return False
    if before is None:
        return all(map(names, patterns)) and not any("*" in one for one in patterns)
    former = before.spec.policy.approvers
    return former is UNSET or not set(former) <= set(patterns)
