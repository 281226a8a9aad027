"""Serve backtests."""

from __future__ import annotations

import msgspec

from compatgate.documents.sources import Source
from compatgate.errors import BadInput
from compatgate.kit.http.replies import Reply
from compatgate.kit.http.requests import to_struct
from compatgate.service.backtests.schemas import (
    BACKTEST_EXAMPLES,
    BacktestBody,
    BacktestRequest,
)
from compatgate.service.backtests.service import backtest_edits, plan_edits
from compatgate.service.matrix.blessing import targets_of
from compatgate.service.web.call import Call
from compatgate.service.web.route import Body, NoQuery, Returns, route


@route(
    "POST",
    "/backtests",
    scope="plan",
    tag="matrix",
    targets="checked",
    body=Body(BacktestRequest, examples=BACKTEST_EXAMPLES, argument="body"),
    slow=True,
    returns=Returns(BacktestBody, "The answers that differ"),
    errors=(404,),
)
def backtest(call: Call[NoQuery]) -> Reply:
    """Backtest a change of the matrix: decide recorded questions before and after it.

    The gate takes the questions of the decision log and the stacks of canary runs about the
    targets that the change concerns, and evaluates each different one twice: on the current matrix,
    and on the matrix with the change. Both sides use today's facts and evidence. Nothing is stored
    or logged. The work is limited: `remarks` says what was left out.
    """
    asked = to_struct(call.document(), BacktestRequest)
    most = call.service.settings.max_values
    sources = [Source(asked.file, asked.yaml, most)] if asked.yaml else []
    if asked.documents:
        text = msgspec.json.encode(asked.documents).decode()
        sources.append(Source("documents", text, most))
    if not sources and not asked.delete:
        hint = "send documents, yaml or delete"
        raise BadInput("names no change", field="documents", hint=hint)
    edits = plan_edits(call.gate, sources, [(one.kind, one.name) for one in asked.delete])
    call.principal.require_targets(name for edit in edits for name in targets_of(edit))
    found: BacktestBody = backtest_edits(
        call.gate,
        edits,
        days=asked.days,
        decisions=asked.decisions,
        questions=asked.questions,
        shown=asked.shown,
    )
    return Reply(msgspec.to_builtins(found))
