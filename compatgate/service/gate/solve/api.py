"""Serve ``POST /solve``: stacks that pass on targets, best first."""

from __future__ import annotations

from compatgate.core.solve_question import answer_question
from compatgate.kit import clock
from compatgate.kit.http.replies import Reply
from compatgate.kit.http.route import Body, Call, NoQuery, Returns, Routes
from compatgate.service.gate.questions.service import Gate
from compatgate.service.gate.solve.schemas import SOLVE_EXAMPLES, SolveBody, SolveRequest

routes = Routes("gate", targets="checked", scope="plan")


@routes.post(
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
