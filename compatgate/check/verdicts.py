"""Validate a server's verdict, and join several verdicts on one stack.

Fields that output formats need are checked; an answer without them is not a decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from compatgate.core.rule import OUTCOME_RANK, Checked, Finding, Outcome
from compatgate.errors import Unavailable, quote_error


class _Pool(Struct):
    name: str
    gpu: str | None
    driver: str | None
    os: str


class _Verdict(Struct):
    id: str
    verdict: Outcome
    allowed: bool
    mode: str
    target: str | None
    findings: list[Finding]
    checked: Checked
    stack: dict[str, Any]
    pools: list[_Pool]
    matrix_revision: int
    facts: str
    overlays: list[str]
    evidence: list[str]
    decided_at: str
    valid_until: str | None


def verdict_of(answer: dict[str, Any], server: str) -> dict[str, Any]:
    """Validate an answer and return it unchanged, with unknown fields of newer gates."""
    try:
        msgspec.convert(answer, _Verdict)
    except msgspec.ValidationError as error:
        problem = f"the answer of the gate is not a verdict: {quote_error(error)}"
        hint = "check that the URL belongs to a gate"
        raise Unavailable(problem, field=server, hint=hint) from None
    return answer


def join_verdicts(verdicts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Join verdicts on several pools to one, in JSON form.

    ``id`` is that of the worst verdict, ``ids`` lists all; equal findings are merged.
    """
    if len(verdicts) == 1:
        return verdicts[0]
    worst = max(verdicts, key=lambda v: (not v["allowed"], OUTCOME_RANK[v["verdict"]]))
    findings: dict[str, dict[str, Any]] = {}
    for verdict in verdicts:
        for finding in verdict["findings"]:
            key = repr({**finding, "pools": None})
            known = findings.setdefault(key, {**finding, "pools": []})
            known["pools"] = [*known["pools"], *finding["pools"]]
    objecting = {finding["rule"] for finding in findings.values()}
    return {
        **worst,
        "allowed": all(verdict["allowed"] for verdict in verdicts),
        "ids": [verdict["id"] for verdict in verdicts],
        "findings": sorted(
            findings.values(), key=lambda f: (-OUTCOME_RANK[f["outcome"]], f["rule"])
        ),
        "checked": {
            key: [
                rule
                for rule in dict.fromkeys(r for v in verdicts for r in v["checked"][key])
                if rule not in objecting
            ]
            for key in ("passed", "not_applicable")
        },
        "pools": [pool for verdict in verdicts for pool in verdict["pools"]],
    }
