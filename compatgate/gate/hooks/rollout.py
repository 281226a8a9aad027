"""A driver roll-out's question and answer, in the flat form of deploy webhooks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compatgate.core.whatif import EntryChange, WhatIf
from compatgate.documents.names import did_you_mean
from compatgate.errors import BadInput
from compatgate.gate.admission.bound import TARGET
from compatgate.gate.admission.loose import mapping, text
from compatgate.gate.admission.review import one_line
from compatgate.gate.hooks.words import decision

_KEYS = ("driver", "target", "pool", "node")
_EXPLAINED = 3
_LONGEST = 1500


def question(body: Mapping[str, Any], query: Mapping[str, Any]) -> dict[str, Any]:
    """The body of ``POST /what-if``.

    Args:
        body: ``{"target": ..., "driver": ...}``, or a Kubernetes Node as it is.
        query: what the body does not say.

    Raises:
        BadInput: an unknown key, or no driver.
    """
    stated: dict[str, Any] = dict(query)
    if body.get("kind") == "Node":
        metadata = mapping(body.get("metadata"))
        stated["node"] = {"labels": metadata.get("labels"), "name": metadata.get("name")}
        named = text(mapping(metadata.get("annotations")).get(TARGET)).strip()
        if named and not stated.get("target"):
            stated["target"] = named
    else:
        for key, value in body.items():
            if key not in _KEYS:
                raise BadInput("unknown key", field=key, hint=did_you_mean(key, _KEYS))
            stated[key] = value
    driver = stated.pop("driver", None)
    if not isinstance(driver, str) or not driver:
        hint = "the version that is to be rolled out, like 580.95.05"
        raise BadInput("names no driver", field="driver", value=driver, hint=hint)
    return {**stated, "set": {"driver": driver}}


def answer(found: WhatIf) -> dict[str, Any]:
    """What a change does, as a flat object; the reason names entry, rule, message and fix."""
    broken = found.of("breaks")
    left = tuple(entry for entry in found.entries if entry.is_open)
    said = [found.summary]
    said += [_why(entry) for entry in (broken or left)[:_EXPLAINED]]
    said += found.remarks
    shown = {"allowed": found.allowed, "verdict": found.verdict}
    return {
        "decision": decision(shown),
        "allowed": found.allowed,
        "reason": one_line("; ".join(filter(None, said)), _LONGEST),
        "target": found.target,
        "mode": found.mode,
        "verdict": found.verdict,
        "breaks": [entry.entry for entry in broken],
        "unknown": [entry.entry for entry in left],
    }


def _why(entry: EntryChange) -> str:
    if entry.open:
        return f"{entry.entry}: {entry.open[0]}"
    lost = [finding for pool in entry.pools for finding in pool.lost]
    if not lost:
        return ""
    fixes = lost[0].fixes
    mend = f" (fix: {fixes[0].message})" if fixes else ""
    return f"{entry.entry}: {lost[0].rule} {lost[0].message}{mend}"
