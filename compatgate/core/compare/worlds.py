"""Decide questions in one world: one state of matrix, facts and targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.evaluate import assess
from compatgate.core.facts import Facts
from compatgate.core.matrix import Matrix
from compatgate.core.request import Target
from compatgate.core.rule import Verdict
from compatgate.core.stack import Stack

_MAX_FIXED = 50  # stacks whose fixes are computed; fixes cost more than all the rest
_encode = msgspec.json.Encoder(order="deterministic").encode


class World(Protocol):
    """The basis of decisions at one time, like a snapshot of the gate."""

    @property
    def facts(self) -> Facts:
        """Return the catalog."""

    @property
    def matrix(self) -> Matrix:
        """Return entries, waivers and evidence."""

    @property
    def targets(self) -> Mapping[str, Target]:
        """Return the targets by name."""

    @property
    def unusable(self) -> Mapping[str, str]:
        """Return why the facts cannot resolve a target, by name."""


class State(Struct, frozen=True):
    """A world that is put together for one question."""

    facts: Facts
    matrix: Matrix
    targets: dict[str, Target] = {}
    unusable: dict[str, str] = {}


class NoAnswer(Struct, frozen=True):
    """The gate could not answer a question about a target."""

    message: str
    unknown: bool = False  # the target exists, and the facts cannot resolve it


Answer = Verdict | NoAnswer


class Evaluator:
    """Decides stacks in one world; equal questions are decided once.

    Questions are equal where only their images differ, and no waiver and no binding of evidence
    tells these apart.
    """

    def __init__(self, world: World, now: datetime) -> None:
        self._world, self._now = world, now
        self._known: dict[bytes, Verdict] = {}
        self._fixed = 0

    def __call__(self, stack: Stack, target: Target, *, with_fixes: bool = False) -> Verdict:
        """Return the verdict without id and image; fixes come with the first `_MAX_FIXED`."""
        matrix = self._world.matrix
        of_image = matrix.describe_image(stack.image, target.name, target.policy.canary)
        key = _encode((replace(stack, image=None), of_image, target, with_fixes))
        if key not in self._known:
            self._fixed += with_fixes
            with_fixes = with_fixes and self._fixed <= _MAX_FIXED
            facts, now = self._world.facts, self._now
            self._known[key] = assess(
                stack, target, facts=facts, matrix=matrix, now=now, with_fixes=with_fixes
            )
        return self._known[key]

    @property
    def decided(self) -> int:
        """Return the number of different questions so far."""
        return len(self._known)

    def find_place(self, name: str, pools: Sequence[str]) -> Target | NoAnswer:
        """Return a target with some of its pools (empty: all), or why that is impossible."""
        target = self._world.targets.get(name)
        if target is None:
            if why := self._world.unusable.get(name):
                return NoAnswer(f"the target {name} cannot be used: {why}", unknown=True)
            return NoAnswer(f"target {name} does not exist")
        if not pools:
            return target
        named = tuple(pool for pool in target.pools if pool.name in pools)
        if len(named) < len(pools):
            gone = set(pools) - {pool.name for pool in named}
            return NoAnswer(f"the target {name} has no pool {', '.join(sorted(gone))}")
        return replace(target, pools=named)
