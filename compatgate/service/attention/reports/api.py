"""Serve reports about a period, on one target or on all."""

from __future__ import annotations

from msgspec import Struct

from compatgate.kit.http.replies import Reply
from compatgate.kit.http.route import Call, Returns, Routes
from compatgate.kit.http.schemas import Since, Until
from compatgate.service.attention.reports.schemas import TargetReportBody
from compatgate.service.attention.reports.service import make_report
from compatgate.service.gate.questions.service import Gate
from compatgate.service.nodes.reports.service import Nodes

routes = Routes("targets", targets="checked")


class ReportOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """The period of a report; by default the last 7 days."""

    since: Since | None = None
    until: Until | None = None


@routes.get(
    "/targets/{name}/report",
    Returns(TargetReportBody, "The recorded answers, and the answers of today"),
    query=ReportOptions,
    slow=True,
    errors=(404,),
)
def report(call: Call[ReportOptions]) -> Reply:
    """Report changes, questions, canary runs and node events of a target.

    Each recorded answer is compared with the answer to the same question today. At most 300 answers
    are re-evaluated; `left_out` says what exceeded a limit.
    """
    name = call.args["name"]
    call.principal.require_targets([name])
    return _reply(call, name)


@routes.get(
    "/report",
    Returns(TargetReportBody, "The recorded answers, and the answers of today"),
    targets="refused",
    query=ReportOptions,
    slow=True,
)
def report_all(call: Call[ReportOptions]) -> Reply:
    """Report changes, questions, canary runs and node events of all targets, as of one target."""
    return _reply(call, None)


def _reply(call: Call[ReportOptions], name: str | None) -> Reply:
    gate, nodes = call.use(Gate), call.use(Nodes)
    return Reply(make_report(gate, nodes, name, call.query.since, call.query.until))
