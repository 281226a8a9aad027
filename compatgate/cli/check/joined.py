"""Several verdicts on one stack as one: the worst decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compatgate.core.verdict import RANK


def joined(verdicts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One verdict over all pools, in JSON form.

    Its ``id`` is that of the worst, ``ids`` names all; a finding that several share is said once.
    """
    if len(verdicts) == 1:
        return verdicts[0]
    worst = max(verdicts, key=lambda v: (not v["allowed"], RANK[v["verdict"]]))
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
        "findings": sorted(findings.values(), key=lambda f: (-RANK[f["outcome"]], f["rule"])),
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
