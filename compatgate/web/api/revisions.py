"""The history of the matrix."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from compatgate.documents.specs import Kind
from compatgate.web.call import Call, Reply
from compatgate.web.paging import Filter, Paged, page
from compatgate.web.query import Since, Until
from compatgate.web.route import LARGEST, NoQuery, Returns, route
from compatgate.wire.matrix import Changes, RevisionBody, RevisionDetail


class RevisionFilters(Paged, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which revisions to list."""

    author: Filter | None = None
    kind: Annotated[Kind, Meta(description="that changed a document of this kind")] | None = None
    name: Annotated[Filter, Meta(description="that changed a document of this name")] | None = None
    since: Since | None = None
    until: Until | None = None


@route(
    "GET",
    "/revisions",
    scope="read",
    tag="matrix",
    query=RevisionFilters,
    returns=Returns(RevisionBody, "A page of revisions", paged=True, etag=True),
)
def list_revisions(call: Call[RevisionFilters]) -> Reply:
    """List revisions of the matrix, newest first."""
    return page(call.gate.matrix.list_revisions(**call.query.filters()), lambda r: r.to_json())


@route(
    "GET",
    "/revisions/{number:int}",
    scope="read",
    tag="matrix",
    returns=Returns(RevisionDetail, "The revision", etag=True),
    errors=(404,),
)
def show_revision(call: Call[NoQuery]) -> Reply:
    """Show a revision with what it changed."""
    row = call.gate.matrix.show_revision(call.args["number"])
    return Reply({**row.to_json(), "changes": [change.to_json() for change in row.changes]})


class DiffFrom(Struct, frozen=True, forbid_unknown_fields=True, rename={"older": "from"}):
    """What to compare with."""

    older: (
        Annotated[
            int,
            Meta(ge=0, le=LARGEST["int"], description="older revision; the one before if left out"),
        ]
        | None
    ) = None


@route(
    "GET",
    "/revisions/{number:int}/diff",
    scope="read",
    tag="matrix",
    query=DiffFrom,
    returns=Returns(Changes, "The differences, document by document", etag=True),
    errors=(404,),
)
def diff_revisions(call: Call[DiffFrom]) -> Reply:
    """Compare a revision with an older one."""
    newer: int = call.args["number"]
    older = max(newer - 1, 0) if call.query.older is None else call.query.older
    changes: list[Any] = [c.to_json() for c in call.gate.matrix.diff(older, newer)]
    return Reply({"older": older, "newer": newer, "changes": changes})
