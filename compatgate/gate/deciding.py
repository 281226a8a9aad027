"""From a question's body to its verdict, on a snapshot; no database, no log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.evaluate import assess, evaluate, seal
from compatgate.core.matrix import matches_image
from compatgate.core.request import Request, change_pool, parse_request
from compatgate.core.target import Policy, Target
from compatgate.core.verdict import Basis, Verdict
from compatgate.documents.names import did_you_mean
from compatgate.errors import NotFound
from compatgate.gate.remembered import Remembered
from compatgate.gate.snapshot import Snapshot

_encode = msgspec.json.Encoder().encode
"""Keeps the order of keys, in which a verdict shows the stack."""


def decide(body: Any, snapshot: Snapshot, now: datetime, *, by_image: bool = False) -> Verdict:
    """The verdict on a question.

    Args:
        body: as ``POST /gate``.
        snapshot: what the answer rests on.
        now: for ends of life, waivers and the age of evidence.
        by_image: the stack is what the gate itself read from the image, and nothing besides.

    Raises:
        BadInput: names the field.
        NotFound: there is no such target.
    """
    request = parse_request(body, snapshot.facts.gpus)
    target = asked_target(request, snapshot)
    basis = _basis(request.changes, by_image)
    return evaluate(
        request.stack,
        target,
        facts=snapshot.facts,
        matrix=snapshot.matrix,
        now=now,
        basis=basis,
    )


def _basis(changes: Any, by_image: bool) -> Basis:
    if changes:
        return "what-if"
    return "image" if by_image else "stated"


class _Assessed(Struct, frozen=True, gc=False):
    """What was found of a stack on a target, whatever image it came in."""

    found: Verdict
    policy: Policy


class Decider:
    """Decides as `decide` does, and assesses a stack once for all images that it comes in.

    Builds of one service differ in their digest, hardly ever in what is inside.
    """

    def __init__(self) -> None:
        self._assessed: Remembered[_Assessed] = Remembered()
        self.clear = self._assessed.clear

    def decide(
        self, body: Any, snapshot: Snapshot, now: datetime, *, by_image: bool = False
    ) -> Verdict:
        """The verdict on a question; arguments and errors are those of `decide`."""
        key = _key(body, snapshot)
        known = self._assessed.get(key, snapshot) if key is not None else None
        if known is not None:
            basis = _basis(body.get("set"), by_image)
            return seal(known.found, known.policy, body.get("image"), now, basis)
        request = parse_request(body, snapshot.facts.gpus)
        target = asked_target(request, snapshot)
        found = assess(request.stack, target, facts=snapshot.facts, matrix=snapshot.matrix, now=now)
        if key is not None:
            known = _Assessed(found, target.policy)
            self._assessed.put(key, snapshot, known, found.valid_until, now)
        basis = _basis(request.changes, by_image)
        return seal(found, target.policy, request.stack.image, now, basis)


def _key(body: Any, snapshot: Snapshot) -> bytes | None:
    """All of a question that decides its assessment; None where the image is not one."""
    if not isinstance(body, Mapping):
        return None
    image, target = body.get("image"), body.get("target") or ""
    if not isinstance(target, str) or not (image is None or (image and isinstance(image, str))):
        return None
    waivers = [matches_image(image, glob) for glob in snapshot.matrix.image_patterns(target)]
    return _encode([waivers, {name: value for name, value in body.items() if name != "image"}])


def asked_target(request: Request, snapshot: Snapshot) -> Target:
    """Return the target of a request: the pools that it names, its ``set`` applied to each.

    Raises:
        NotFound: there is no such target, or no such pool of it.
    """
    if request.pool is not None:
        return Target("", (request.pool,))
    target = _with_pools(snapshot.target(request.target or ""), request.pools)
    if not request.changes:
        return target
    gpus = snapshot.facts.gpus
    pools = tuple(change_pool(pool, request.changes, gpus) for pool in target.pools)
    return replace(target, pools=pools)


def _with_pools(target: Target, names: Sequence[str]) -> Target:
    """Return the target with these of its pools; it remembers which are left out."""
    known = [pool.name for pool in target.pools]
    for name in names:
        if name not in known:
            what = f"the target {target.name!r} has no pool {name!r}"
            raise NotFound(what, field="pools", value=name, hint=did_you_mean(name, known))
    left = tuple(name for name in known if names and name not in names)
    if not left:
        return target
    pools = tuple(pool for pool in target.pools if pool.name in names)
    return replace(target, pools=pools, left_out=left)
