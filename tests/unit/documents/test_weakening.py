"""Which changes of a target enforce less: every field of the schema, both ways."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct, UnsetType
from msgspec.structs import fields
from target_fields import ALWAYS, BASE, NEVER, POOL, VALUES, put, weakening_pairs

from compatgate.documents.specs import MatchSpec, PoolSpec, TargetDoc
from compatgate.documents.weakening import FIELDS, find_weakened, is_stricter, overlaps


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


GLOBS = st.text("ab*?", min_size=1, max_size=5)
NAMES = [
    "".join(letters) for length in range(1, 7) for letters in itertools.product("ab", repeat=length)
]


@given(one=GLOBS, other=GLOBS)
def test_matches_overlap_where_some_namespace_fits_both(one: str, other: str) -> None:
    both = any(fnmatchcase(name, one) and fnmatchcase(name, other) for name in NAMES)
    assert overlaps(MatchSpec((one,)), MatchSpec((other,))) is both


@pytest.mark.parametrize(
    ("match", "other", "expected"),
    [
        (MatchSpec(), MatchSpec(("ml",)), False),
        (MatchSpec((), {"a": "1"}), MatchSpec(("ml",)), True),
        (MatchSpec(("lab",), {"a": "1"}), MatchSpec(("ml",), {"b": "2"}), True),
        (MatchSpec(("lab",), {"a": "1"}), MatchSpec(("ml",), {"a": "2"}), False),
        (MatchSpec(("lab",), {"a": "1"}), MatchSpec(("ml",)), False),
        (MatchSpec(("[m]?",)), MatchSpec(("ml",)), True),
    ],
)
def test_nodes_that_both_may_have_are_shared_whatever_the_namespace(
    match: MatchSpec, other: MatchSpec, expected: bool
) -> None:
    assert overlaps(match, other) is overlaps(other, match) is expected


def test_a_policy_is_stricter_where_it_asks_for_something_more() -> None:
    for path, strict, lax in weakening_pairs():
        if path.startswith("spec.policy."):
            assert is_stricter(strict.spec.policy, lax.spec.policy), path
            assert not is_stricter(strict.spec.policy, strict.spec.policy)
