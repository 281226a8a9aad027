"""Name the causes of a text with the gate's facts, and compare them with its verdict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from compatgate.core.stated_text import complete_question
from compatgate.core.triage import FoundCause, compare_verdict, find_causes
from compatgate.service.gate.questions.service import Gate


class NamedCauses(NamedTuple):
    """The causes that a text shows, and what it states of the stack and its place."""

    causes: tuple[FoundCause, ...]
    stated: dict[str, str]


def name_causes(gate: Gate, text: str, question: Mapping[str, Any]) -> NamedCauses:
    """Return the causes that a text shows. Nothing is stored or logged.

    ``question``: body of ``POST /gate``; the text's own versions, driver and GPU count where it
    leaves them out. Empty, and nothing stated: no stack is compared.
    """
    causes = find_causes(text, gate.facts.error_signatures)
    whole, stated = complete_question(question, text, gate.facts) if causes else (question, {})
    if whole:
        causes = compare_verdict(causes, gate.preview(whole).to_json())
    return NamedCauses(causes, stated)
