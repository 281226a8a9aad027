"""Name the causes of a text with the gate's facts, and compare them with its verdict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compatgate.core.triage import FoundCause, compare_verdict, find_causes
from compatgate.service.gate.service import Gate


def name_causes(gate: Gate, text: str, question: Mapping[str, Any]) -> tuple[FoundCause, ...]:
    """Return the causes that a text shows. Nothing is stored or logged.

    Args:
        gate: has the facts, and gives the verdict.
        text: an error or a log.
        question: body of ``POST /gate``; empty: no stack is compared.

    Raises:
        BadInput: the question is malformed.
        NotFound: the target does not exist.
    """
    causes = find_causes(text, gate.facts.error_signatures)
    return compare_verdict(causes, gate.preview(question).to_json()) if question else causes
