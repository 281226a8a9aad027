"""``POST /hooks/generic`` and ``POST /hooks/argo-rollouts``: a decision in one flat object."""

from __future__ import annotations

from typing import Any

from flask import request

from compatgate.errors import CompatgateError
from compatgate.gate.hooks import words
from compatgate.gate.hooks.question import KEYS, question_of
from compatgate.web.call import Call, Reply
from compatgate.web.hooks.deploying import (
    ALLOWED,
    OPEN,
    STATUSES,
    decide,
    decision_of,
    hook,
    reason_of,
    status_of,
)
from compatgate.web.route import Body, Returns
from compatgate.wire.deploying import (
    QUESTIONS,
    ArgoQuery,
    DeployAnswer,
    DeployPoll,
    DeployQuery,
    DeployQuestion,
)


def answer_of(decided: dict[str, Any], link: str) -> dict[str, Any]:
    """A verdict as a flat object."""
    return {
        "decision": words.decision(decided),
        "allowed": decided["allowed"],
        "reason": words.reason(decided, link),
        "target": decided["target"],
        "mode": decided["mode"],
        "verdict": decided["verdict"],
        "id": decided["id"],
        "url": link,
    }


def refusal_of(error: CompatgateError) -> dict[str, Any]:
    """An error as the same object."""
    return {"decision": decision_of(error), "allowed": False, "reason": reason_of(error)}


def status_for(decision: str, wanted: str) -> int:
    """The status of a decision, unless it is wanted to be ``200`` always."""
    return ALLOWED if wanted == "200" else STATUSES.get(decision, OPEN)


def refused(error: CompatgateError) -> Reply:
    """An error, answered as the query wants it; a query that is wrong wants nothing."""
    always = request.args.getlist("status") == ["200"]
    return Reply(refusal_of(error), status=ALLOWED if always else status_of(error))


def _refused_argo(error: CompatgateError) -> Reply:
    return Reply(refusal_of(error))


@hook(
    "POST",
    "/generic",
    name="ask_generic",
    query=DeployQuery,
    body=Body(DeployQuestion, examples=QUESTIONS),
    returns=Returns(DeployAnswer, "It may be deployed; with `status=200` any decision"),
    refused=refused,
)
def ask(call: Call[DeployQuery]) -> Reply:
    """Decide about a deployment, for any tool that can send a request.

    200 where it is allowed, 409 where the gate denies, 424 where no decision can be had (ask
    again), and the usual statuses for a request that is wrong. With `?status=200` every answer but
    a refusal of access is 200, and `decision` says which it is.
    """
    query = call.query
    found = answer_of(*decide(call, question_of(call.document()), "generic", query.timeout))
    return Reply(found, status=status_for(found["decision"], query.status))


@hook(
    "GET",
    "/generic",
    name="poll_generic",
    query=DeployPoll,
    returns=Returns(DeployAnswer, "It may be deployed; with `status=200` any decision"),
    refused=refused,
)
def poll(call: Call[DeployPoll]) -> Reply:
    """Decide about a deployment, for a tool that polls; the question is in the query.

    Each time is a decision of its own, and logged. Statuses are those of the POST.
    """
    query = call.query
    fields = {key: getattr(query, key) for key in KEYS}
    found = answer_of(*decide(call, question_of(fields), "generic", query.timeout))
    return Reply(found, status=status_for(found["decision"], query.status), secret=True)


@hook(
    "POST",
    "/argo-rollouts",
    name="ask_argo_rollouts",
    query=ArgoQuery,
    body=Body(DeployQuestion, examples=QUESTIONS),
    returns=Returns(DeployAnswer, "Any decision, and whatever was wrong with the question"),
    refused=_refused_argo,
    errors=(),
)
def ask_argo(call: Call[ArgoQuery]) -> Reply:
    """Decide about a rollout, as the web metric of an Argo Rollouts analysis.

    Everything but a refusal of access is answered 200, since Argo keeps no body of another status.
    A template with both a `successCondition` (`result.decision == "allow"`) and a
    `failureCondition` (`result.decision == "deny"`) leaves the rest inconclusive.
    """
    question = question_of(call.document())
    return Reply(answer_of(*decide(call, question, "argo-rollouts", call.query.timeout)))
