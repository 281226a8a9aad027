"""Which changes of a target enforce less: every field of the schema, both ways."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import UNSET, Struct, UnsetType
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
from compatgate.documents.weakening import FIELDS, find_weakened

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
    "spec.policy.canary.suites": ((("smoke", "dl"), ("smoke",)), (("smoke",), ("dl",))),
    "spec.policy.canary.acceptDevelopment": ((False, True),),
    "spec.policy.canary.soak": ((("dl",), ()), (("dl",), ("smoke",))),
    "spec.policy.canary.promote": (("approval", "automatic"),),
    "spec.policy.canary.onFailure": (("revoke", "warn"),),
    "spec.policy.canary.bind": (("image", "content"), ("content", "versions"), (UNSET, "versions")),
    "spec.policy.canary.assurance": (("witnessed", "challenged"), ("challenged", "self-reported")),
    "spec.policy.onUnknown": (("fail", "warn"), ("warn", "allow"), ("fail", "allow")),
    "spec.policy.packages": (("enforce", "audit"),),
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


def leaves(kind: type[Struct], path: str = "") -> Iterator[str]:
    """Yield every path of the schema, as deep as the table decides."""
    for field in fields(kind):
        place = f"{path}.{field.encode_name}".lstrip(".")
        inner = [one for one in kinds(field.type) if isinstance(one, type)]
        nested = [one for one in inner if issubclass(one, Struct)]
        if nested and place not in FIELDS:
            yield from leaves(nested[0], place)
        else:
            yield place


def kinds(hint: Any) -> Iterator[Any]:
    """Yield a type and the types that it is made of."""
    parts = getattr(hint, "__args__", ())
    if not parts:
        yield hint
    for part in (*parts, getattr(hint, "__origin__", None)):
        if part not in (None, UnsetType, ...):
            yield from kinds(part)


def put(document: Any, path: str, value: Any) -> Any:
    """Return the document with another value at a path; in the first pool."""
    name, _, rest = path.partition(".")
    if isinstance(document, tuple):
        return (put(document[0], path, value), *document[1:])
    (field,) = (one for one in fields(document) if one.encode_name == name)
    inner = put(getattr(document, field.name), rest, value) if rest else value
    return replace(document, **{field.name: inner})


def test_every_field_of_the_schema_is_classified() -> None:
    """A new field fails this until somebody has decided whether it weakens."""
    assert set(leaves(TargetDoc)) == set(FIELDS)
    assert {*VALUES, *ALWAYS, *NEVER} == set(FIELDS)


@pytest.mark.parametrize(
    ("path", "pair"), [(path, pair) for path, pairs in VALUES.items() for pair in pairs]
)
def test_less_weakens_and_more_does_not(path: str, pair: tuple[Any, Any]) -> None:
    strict, lax = (put(BASE, path, value) for value in pair)
    assert find_weakened(strict, lax) == [path]
    if not path.endswith(("suites", "soak")) or set(pair[1]) < set(pair[0]):
        assert find_weakened(lax, strict) == []


@pytest.mark.parametrize("path", ALWAYS)
def test_what_decides_where_and_what_is_judged_weakens_both_ways(path: str) -> None:
    one, other = (put(BASE, path, value) for value in ALWAYS[path])
    expected = ["spec.pools"] if path == "spec.pools.name" else [path]
    assert find_weakened(one, other) == find_weakened(other, one) == expected


@pytest.mark.parametrize("path", NEVER)
def test_what_nothing_is_judged_by_weakens_nothing(path: str) -> None:
    one, other = (put(BASE, path, value) for value in NEVER[path])
    assert find_weakened(one, other) == find_weakened(other, one) == []


def test_a_pool_that_comes_or_goes_weakens_but_not_its_place() -> None:
    other = PoolSpec("h100", "H100-SXM5-80GB", "535.183.01")
    more = put(BASE, "spec.pools", (POOL, other))
    assert find_weakened(BASE, more) == find_weakened(more, BASE) == ["spec.pools"]
    assert find_weakened(more, put(BASE, "spec.pools", (other, POOL))) == []


def test_all_that_weakens_is_named() -> None:
    lax = put(put(BASE, "spec.policy.mode", "audit"), "spec.pools.driver", "580.95.05")
    assert find_weakened(BASE, lax) == ["spec.pools.driver", "spec.policy.mode"]
    assert find_weakened(BASE, BASE) == []
