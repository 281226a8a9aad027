"""Serve ``POST /solve`` and ``POST /triage``: stacks that pass, and the causes of an error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from compatgate.core.solve import answer_question
from compatgate.core.stated_text import complete_question
from compatgate.core.triage import FoundCause, compare_verdict, find_causes
from compatgate.kit import clock
from compatgate.kit.http.replies import Reply
from compatgate.kit.http.requests import to_struct
from compatgate.kit.http.route import Body, Call, NoQuery, Returns, Routes
from compatgate.service.gate.advice.schemas import (
    SOLVE_EXAMPLES,
    TRIAGE_EXAMPLES,
    SolveBody,
    SolveRequest,
    TriageBody,
    TriageRequest,
)
from compatgate.service.gate.questions.service import Gate

gate_routes = Routes("gate", targets="checked", scope="plan")
triage_routes = Routes("gate", scope="gate")


@gate_routes.post(
    "/solve",
    Returns(SolveBody, "Stacks that pass, or the nearest misses"),
    body=Body(SolveRequest, examples=SOLVE_EXAMPLES, argument="body"),
    errors=(404,),
)
def solve(call: Call[NoQuery]) -> Reply:
    """Find the newest whole stacks that pass on a target, or on every one of several.

    Candidates come from the facts, the entries of the matrix and measured runs. The gate evaluates
    each stack as `POST /gate` does, and returns those whose verdict is pass or warn: fewest changes
    from `from` first, then the newest wanted versions, then those without warnings. Nothing is
    logged. The work is limited: `complete` is false where the search ended at its limit. Only where
    it is true and `unknown` is empty does an answer without stacks say that none passes.
    """
    question = call.document()
    named = question.get("targets") or [question.get("target")]
    call.principal.require_targets(
        [name for name in named if isinstance(name, str)] if isinstance(named, list) else []
    )
    snapshot = call.use(Gate).snapshot()
    found = call.use(Gate).compute(
        answer_question,
        question,
        snapshot.target,
        facts=snapshot.facts,
        matrix=snapshot.matrix,
        now=clock.now(),
    )
    return Reply(call.use(Gate).with_state(found))


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


@triage_routes.post(
    "/triage",
    Returns(TriageBody, "The causes; a text that is not recognised also returns 200"),
    body=Body(TriageRequest, examples=TRIAGE_EXAMPLES),
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
