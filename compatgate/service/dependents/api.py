"""Serve what depends on an entry."""

from __future__ import annotations

import msgspec

from compatgate.kit.http.replies import Reply
from compatgate.service.dependents.schemas import DependentsBody
from compatgate.service.dependents.service import find_dependents
from compatgate.service.web.call import Call
from compatgate.service.web.route import NoQuery, Returns, route


@route(
    "GET",
    "/entries/{name}/dependents",
    scope="read",
    tag="entries",
    targets="checked",
    returns=Returns(DependentsBody, "Targets, recorded stacks, nodes and entries"),
    errors=(404,),
)
def list_dependents(call: Call[NoQuery]) -> Reply:
    """List what depends on an entry: targets, recorded stacks, reported nodes and other entries.

    Stacks are those of the last 30 days that the entry decided. Each is re-evaluated without the
    entry: `lost`: the gate would then no longer allow it.
    """
    name, principal = call.args["name"], call.principal
    row = call.gate.matrix.get("Entry", name)
    principal.require_any(row.document["spec"]["targets"], f"the entry {name}")
    return Reply(msgspec.to_builtins(find_dependents(call.gate, name, principal.reaches)))
