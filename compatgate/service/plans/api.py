"""Serve plans of upgrades."""

from __future__ import annotations

from compatgate.kit.http.replies import Reply
from compatgate.service.plans.schemas import PLAN_EXAMPLES, PlanBody, PlanRequest
from compatgate.service.plans.service import plan_upgrade
from compatgate.service.web.call import Call
from compatgate.service.web.route import Body, NoQuery, Returns, route


@route(
    "POST",
    "/targets/{name}/plan",
    scope="plan",
    tag="targets",
    targets="checked",
    body=Body(PlanRequest, examples=PLAN_EXAMPLES, argument="body"),
    slow=True,
    returns=Returns(PlanBody, "The plan; denials also return 200"),
    errors=(404,),
)
def plan(call: Call[NoQuery]) -> Reply:
    """Plan an upgrade of driver or CUDA on a target.

    The gate evaluates every entry in use, every stack that it allowed in the last 30 days and the
    releases of their frameworks, before and after, and groups what gets worse by cause. It proposes
    edits of entries, lists the canary suites to run, asks every driver branch what it keeps, and
    orders the reported nodes in waves by failure domain. Nothing is logged or changed.
    """
    call.principal.require_targets([call.args["name"]])
    return Reply(plan_upgrade(call.gate, call.args["name"], call.document()))
