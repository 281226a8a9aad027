"""Serve ``POST /triage``: the causes of a pasted error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from compatgate.core.stated_text import complete_question
from compatgate.core.triage import FoundCause, compare_verdict, find_causes
from compatgate.kit.http.replies import Reply
from compatgate.kit.http.requests import to_struct
from compatgate.kit.http.route import Body, Call, NoQuery, Returns, Routes
from compatgate.service.gate.questions.service import Gate
from compatgate.service.gate.triage.schemas import EXAMPLES, TriageBody, TriageRequest

routes = Routes("gate", scope="gate")


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


@routes.post(
    "/triage",
    Returns(TriageBody, "The causes; a text that is not recognised also returns 200"),
    body=Body(TriageRequest, examples=EXAMPLES),
    errors=(404, 502, 503, 504),
)
def triage(call: Call[NoQuery]) -> Reply:
    """Find the causes of an error text.

    With a stack on a target or pool, the answer also says whether the rules behind a cause fail
    there, with fixes that were evaluated there. Versions, driver and GPU that the text states
    count where the question leaves them out; `stated` lists them. The text is neither stored nor
    logged, and no decision is logged.
    """
    document = call.document()
    asked = to_struct(document, TriageRequest)
    question = {name: value for name, value in document.items() if name != "text"}
    found = name_causes(call.use(Gate), asked.text, question)
    causes = [cause.to_json() for cause in found.causes]
    return Reply({"causes": causes, "stated": found.stated})
