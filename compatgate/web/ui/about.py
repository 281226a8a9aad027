"""What the gate itself says of an entry on a target, as pages show it."""

from __future__ import annotations

from typing import Any

from compatgate.core.representative import Represented, represent
from compatgate.core.verdict import Verdict
from compatgate.gate.heatmap import Pair
from compatgate.web.ui.page import Ask
from compatgate.web.ui.question import Question, written


def about(ask: Ask[Any], pair: Pair) -> dict[str, Any]:
    """The gate's answer on the newest stack that an entry allows, and what it rests on."""
    represented = represent(pair.entry, ask.gate.facts)
    remarks = ask.gate.runs.remarks([pair.entry.name]).get(pair.entry.name)
    return {
        **judged(ask, pair.target, represented),
        "open": represented.open,
        "remarks": remarks.to_json() if remarks else {},
    }


def judged(ask: Ask[Any], target: str, represented: Represented) -> dict[str, Any]:
    """The gate's answer on the newest stack that stands for an entry; none where none does.

    Args:
        ask: the request.
        target: by name.
        represented: what stands for the entry.
    """
    verdict: Verdict | None = None
    stack = represented.stacks[0].to_json() if represented.stacks else {}
    if stack and target in ask.gate.snapshot().targets:
        verdict = ask.gate.preview({"target": target, "stack": stack})
    return {
        "verdict": verdict.to_json() if verdict else None,
        "stack": stack,
        "ask": Question(target=target, stack=written(stack)).link(),
    }
