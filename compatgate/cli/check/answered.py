"""What every form of the answer relies on: a server's answer without it is no decision."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from compatgate.core.verdict import FindingOutcome, Outcome
from compatgate.errors import Unavailable


class _Fix(Struct):
    set: dict[str, Any]
    message: str


class _Source(Struct):
    title: str
    url: str | None


class _Finding(Struct):
    rule: str
    name: str
    outcome: FindingOutcome
    pools: list[str]
    component: str
    have: str | None
    need: str | None
    message: str
    source: _Source | None
    fixes: list[_Fix]


class _Pool(Struct):
    name: str
    gpu: str | None
    driver: str | None
    os: str


class _Checked(Struct):
    passed: list[str]
    not_applicable: list[str]


class _Verdict(Struct):
    id: str
    verdict: Outcome
    allowed: bool
    mode: str
    target: str | None
    findings: list[_Finding]
    checked: _Checked
    stack: dict[str, Any]
    pools: list[_Pool]
    matrix_revision: int
    facts: str
    overlays: list[str]
    evidence: list[str]
    decided_at: str
    valid_until: str | None


def verdict_of(answer: dict[str, Any], server: str) -> dict[str, Any]:
    """The answer itself, which is a verdict; members that only a newer gate knows are kept.

    Raises:
        Unavailable: it is something else, as of a proxy in between: nothing was decided.
    """
    try:
        msgspec.convert(answer, _Verdict)
    except msgspec.ValidationError as error:
        problem = f"the gate answered with something else than a verdict: {error}"
        raise Unavailable(problem, field=server, hint="is it a gate?") from None
    return answer
