"""Values of each field of a target: which changes weaken it, one way or both ways."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import UNSET
from msgspec.structs import fields, replace

from compatgate.documents.specs import (
    CanarySpec,
    MatchSpec,
    PolicySpec,
    PoolSpec,
    TargetDoc,
    TargetMetadata,
    TargetSpec,
    WaiverPolicySpec,
)

POOL = PoolSpec("a100", "A100-SXM4-80GB", "535.183.01")
BASE = TargetDoc(
    "compatgate.dev/v1",
    TargetMetadata("prod", {"tier": "prod"}),
    TargetSpec((POOL,), MatchSpec(("ml-*",), {"a": "b"}), PolicySpec(canary=CanarySpec())),
)
WAIVERS = WaiverPolicySpec
VALUES: dict[str, tuple[tuple[Any, Any], ...]] = {
    "spec.policy.mode": (("enforce", "warn"), ("enforce", "audit"), ("warn", "audit")),
    "spec.policy.requireEntry": ((True, False),),
    "spec.policy.canary.require": ((True, False),),
    "spec.policy.canary.maxAge": (("30d", "31d"), ("24h", "2d"), ("1w", "8d")),
    "spec.policy.canary.suites": ((("smoke", "dl-core"), ("smoke",)), (("smoke",), ("dl-core",))),
    "spec.policy.canary.acceptDevelopment": ((False, True),),
    "spec.policy.canary.soak": ((("dl-core",), ()), (("dl-core",), ("smoke",))),
    "spec.policy.canary.promote": (("approval", "automatic"),),
    "spec.policy.canary.onFailure": (("revoke", "warn"),),
    "spec.policy.canary.bind": (("image", "content"), ("content", "versions"), (UNSET, "versions")),
    "spec.policy.canary.assurance": (("witnessed", "challenged"), ("challenged", "self-reported")),
    "spec.policy.onUnknown": (("fail", "warn"), ("warn", "allow"), ("fail", "allow")),
    "spec.policy.packages": (("enforce", "audit"),),
    "spec.policy.missingFacts": (("enforce", "audit"),),
    "spec.policy.entries": (("strict", "lenient"),),
    "spec.policy.statedStacks": (("ignore", "accept"), ("ignore", UNSET)),
    "spec.policy.waivers": (
        (UNSET, WAIVERS("91d")),
        (WAIVERS("7d"), UNSET),
        (WAIVERS("7d"), WAIVERS("8d")),
    ),
    "spec.policy.approvals": ((2, UNSET), (2, 1)),
    "spec.policy.approvers": ((("sre-*",), UNSET), (("ann",), ("ann", "bob"))),
    "spec.policy.changes": (("proposals", UNSET), ("proposals", "direct")),
}
"""Pairs of values of each field that weakens one way only: stricter, laxer."""
ALWAYS: dict[str, tuple[Any, Any]] = {
    "metadata.name": ("prod", "other"),
    "spec.policy.canary.imported": ({}, {"smoke": ("dcgm@lab",)}),
    "spec.pools.name": ("a100", "b"),
    "spec.pools.gpu": ("A100-SXM4-80GB", "H100-SXM5-80GB"),
    "spec.pools.driver": ("535.183.01", "580.95.05"),
    "spec.pools.os": ("linux", "windows"),
    "spec.pools.cpu": ("x86_64", "aarch64"),
    "spec.pools.platform": (UNSET, "bare-metal"),
    "spec.pools.sharing": ("exclusive", "mps"),
    "spec.pools.node": ({"kernel-modules": "open"}, {"kernel-modules": "proprietary"}),
    "spec.match.namespaces": (("ml-*",), ("ml-*", "ai-*")),
    "spec.match.nodeLabels": ({"a": "b"}, {}),
}
NEVER: dict[str, tuple[Any, Any]] = {
    "apiVersion": ("compatgate.dev/v1", "compatgate.dev/v2"),
    "metadata.labels": ({"tier": "prod"}, {}),
    "metadata.owner": ("team-ml", None),
    "metadata.links": ({"runbook": "https://wiki.example/"}, {}),
    "spec.pools.count": (1, 512),
}


def put(document: Any, path: str, value: Any) -> Any:
    """Return the document with another value at a path; in the first pool."""
    name, _, rest = path.partition(".")
    if isinstance(document, tuple):
        return (put(document[0], path, value), *document[1:])
    (field,) = (one for one in fields(document) if one.encode_name == name)
    inner = put(getattr(document, field.name), rest, value) if rest else value
    return replace(document, **{field.name: inner})


def weakening_pairs() -> Iterator[tuple[str, TargetDoc, TargetDoc]]:
    """Yield each change of a field that weakens a target: its path, the target before and after."""
    for path, pairs in VALUES.items():
        people = 2 if path.endswith("approvers") else UNSET  # without several they have no effect
        base = put(BASE, "spec.policy.approvals", people)
        for strict, lax in pairs:
            yield path, put(base, path, strict), put(base, path, lax)
    for path, (one, other) in ALWAYS.items():
        if path != "metadata.name":
            yield path, put(BASE, path, one), put(BASE, path, other)
            yield path, put(BASE, path, other), put(BASE, path, one)
