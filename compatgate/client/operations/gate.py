"""Asking the gate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from compatgate.client.operation import Operation
from compatgate.client.request import Request, get, members, post
from compatgate.wire.verdicts import GateRequest, PoolQuestion, StackValue, VerdictBody
from compatgate.wire.whatif import WhatIfBody, WhatIfRequest

Pool = PoolQuestion | Mapping[str, Any]
Stack = Mapping[str, StackValue]
Question = GateRequest | Mapping[str, Any]


@Operation
def ask(
    question: Question | None = None,
    *,
    target: str | None = None,
    pools: Sequence[str] | None = None,
    pool: Pool | None = None,
    stack: Stack | None = None,
    image: str | None = None,
    set: Stack | None = None,  # noqa: A002 - the body's name
) -> Request[VerdictBody]:
    """Decide whether a stack may run on a target or pool; the decision is logged.

    Args:
        question: the whole body, instead of its members.
        target: name of a target.
        pools: names of the target's pools that the question is about; None: all.
        pool: a place described instead: ``driver``, ``gpu``, ``os``, ``cpu``.
        stack: component to version.
        image: reference of an image.
        set: what if: component or property of the pool to value.
    """
    body = question or members(
        target=target, pools=pools, pool=pool, stack=stack, image=image, set=set
    )
    return post("/gate", VerdictBody, body=body, reads=GateRequest, repeatable=True)


@Operation
def preview(
    question: Question | None = None,
    *,
    at: str | int | None = None,
    target: str | None = None,
    pools: Sequence[str] | None = None,
    pool: Pool | None = None,
    stack: Stack | None = None,
    image: str | None = None,
    set: Stack | None = None,  # noqa: A002 - the body's name
) -> Request[VerdictBody]:
    """Say what the gate would answer, or would have answered; nothing is logged.

    Args:
        question: as `ask`; so are the others.
        at: an older matrix: a revision, or a time (a date means its end, UTC).
        target: as `ask`.
        pools: as `ask`.
        pool: as `ask`.
        stack: as `ask`.
        image: as `ask`.
        set: as `ask`.
    """
    body = question or members(
        target=target, pools=pools, pool=pool, stack=stack, image=image, set=set
    )
    return post("/gate/preview", VerdictBody, body=body, reads=GateRequest, repeatable=True, at=at)


@Operation
def what_if(body: WhatIfRequest | Mapping[str, Any]) -> Request[WhatIfBody]:
    """Say what a target would gain and lose with another driver, GPU or CUDA.

    Args:
        body: ``target`` or ``node``, and what becomes another, as ``set``.
    """
    return post("/what-if", WhatIfBody, body=body, reads=WhatIfRequest, repeatable=True)


@Operation
def show_verdict(id: str) -> Request[VerdictBody]:  # noqa: A002 - the path's name
    """Show a verdict by its id."""
    return get("/verdicts/{id}", VerdictBody, id=id)


@Operation
def openapi() -> Request[dict[str, Any]]:
    """Describe the API (OpenAPI 3.1)."""
    return get("/openapi.json", dict[str, Any])
