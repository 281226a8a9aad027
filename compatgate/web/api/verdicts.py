"""Verdicts that were given."""

from __future__ import annotations

from compatgate.web.call import Call, Reply
from compatgate.web.route import NoQuery, Returns, route
from compatgate.wire.verdicts import VerdictBody


@route(
    "GET",
    "/verdicts/{id}",
    scope="read",
    tag="gate",
    returns=Returns(VerdictBody, "The verdict as it was first given", etag=True),
    errors=(404,),
)
def show_verdict(call: Call[NoQuery]) -> Reply:
    """Show a verdict by its id."""
    return Reply(call.gate.show_verdict(call.args["id"]))
