"""Serve entries, and make the routes of every kind of document.

`document_routes` makes the routes that all kinds of documents share: create, show, change, delete.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar
from urllib.parse import quote

from flask import request
from msgspec import Meta, Struct

from compatgate.documents.specs import Kind
from compatgate.errors import Conflict, PreconditionFailed
from compatgate.kit.http.links import API_PREFIX
from compatgate.kit.http.replies import Reply, etag_with_remarks, page_reply
from compatgate.kit.http.route import Body, Call, NoQuery, Returns, Route, Scope, route
from compatgate.kit.principal import Principal
from compatgate.service.matrix.documents.evidence_remarks import EvidenceRemarks
from compatgate.service.matrix.documents.models import StoredDocument
from compatgate.service.matrix.documents.schemas import (
    ENTRY,
    EntryBody,
    EntryChange,
    EntryFilters,
    Made,
)
from compatgate.service.matrix.documents.service import MatrixService

T = TypeVar("T")


class ChangeReason(Struct, frozen=True, forbid_unknown_fields=True):
    """Reason of a change without a body."""

    reason: (
        Annotated[
            str,
            Meta(
                max_length=2000,
                description="reason of the change; or use the header X-Compatgate-Reason",
            ),
        ]
        | None
    ) = None


class ForceOption(Struct, frozen=True, forbid_unknown_fields=True):
    """Option of a change that may name suites."""

    force: Annotated[
        bool,
        Meta(description="accept suites that a worker will bring later; `warnings` names them"),
    ] = False


RemarksFunction = Callable[[Call[Any], str], dict[str, Any]]


class _DocumentKind(Struct, frozen=True):
    """A kind of document, for its routes.

    Attributes:
        plural: path segment.
        scope: required for a change.
        part: enough for a change that needs less; None: none does.
        reads: body of a request.
        shown: type of a document in an answer.
        remarks: returns additional members of a document in an answer.
    """

    kind: Kind
    plural: str
    scope: Scope
    part: Scope | None
    reads: Body
    shown: type
    remarks: RemarksFunction

    @property
    def one(self) -> str:
        return self.kind.lower()

    @property
    def path(self) -> str:
        return f"/{self.plural}/{{name}}"

    @property
    def options(self) -> type[Struct]:
        """Return the query of a change: only the policy of a target names suites."""
        return ForceOption if self.kind == "Target" else NoQuery


def document_routes(
    kind: Kind,
    plural: str,
    *,
    scope: Scope,
    part: Scope | None = None,
    body: type,
    shown: type,
    example: dict[str, Any],
    remarks: RemarksFunction = lambda call, name: {},
) -> tuple[Route, ...]:
    """Return the routes of a kind of document.

    ``part`` is a scope that is enough for a change that needs less, which the matrix checks.
    ``remarks`` returns additional members of a document in an answer.
    """
    reads = Body(body, examples={kind.lower(): example}, argument=kind.lower())
    of = _DocumentKind(kind, plural, scope, part, reads, shown, remarks)
    return (_create_route(of), _show_route(of), _change_route(of), _delete_route(of))


def _create_route(of: _DocumentKind) -> Route:
    @route(
        "POST",
        f"/{of.plural}",
        scope=of.scope,
        tag=of.plural,
        targets="checked",
        name=f"create_{of.one}",
        what=of.one,
        query=of.options,
        body=of.reads,
        reason="body",
        returns=Returns(of.shown, f"The created {of.one}", status=201, etag=True),
        errors=(409,),
    )
    def create(call: Call[Any]) -> Reply:
        """Create the {what} in the request."""
        made = call.use(MatrixService).create(of.kind, call.document(), call.by())
        where = f"{API_PREFIX}/{of.plural}/{quote(made.name)}"
        return document_reply(made, status=201, headers={"Location": where})

    return create


def _show_route(of: _DocumentKind) -> Route:
    @route(
        "GET",
        of.path,
        scope="read",
        tag=of.plural,
        targets="checked",
        name=f"show_{of.one}",
        what=of.one,
        returns=Returns(of.shown, f"The {of.one}", etag=True),
        errors=(404,),
    )
    def show(call: Call[NoQuery]) -> Reply:
        """Show the {what} with this name."""
        row = call.use(MatrixService).get(of.kind, call.args["name"])
        require_readable(call.principal, row)
        return document_reply(row, remarks=of.remarks(call, row.name))

    return show


def require_readable(principal: Principal, row: StoredDocument) -> None:
    """Require that a caller reaches one of the targets of a document."""
    named = [row.name] if row.kind == "Target" else row.document["spec"]["targets"]
    principal.require_any(named, f"the {row.kind.lower()} {row.name}")


def _change_route(of: _DocumentKind) -> Route:
    @route(
        "PUT",
        of.path,
        scope=of.scope,
        tag=of.plural,
        targets="checked",
        name=f"change_{of.one}",
        what=of.one,
        part=of.part,
        query=of.options,
        body=of.reads,
        reason="body",
        matches=True,
        returns=Returns(of.shown, f"The stored {of.one}", etag=True),
        errors=(404, 409),
    )
    def change(call: Call[Any]) -> Reply:
        """Replace the {what} with the document in the request."""
        name, document, by = call.args["name"], call.document(), call.by()

        def replace(expected: int | None) -> StoredDocument:
            return call.use(MatrixService).change(of.kind, name, document, by, expected=expected)

        return document_reply(change_document(call, of.kind, replace))

    return change


def _delete_route(of: _DocumentKind) -> Route:
    @route(
        "DELETE",
        of.path,
        scope=of.scope,
        tag=of.plural,
        targets="checked",
        name=f"delete_{of.one}",
        what=of.one,
        query=ChangeReason,
        reason="query",
        matches=True,
        returns=Returns(Made, "The new revision"),
        errors=(404, 409),
    )
    def delete(call: Call[ChangeReason]) -> Reply:
        """Delete the {what}; its history stays."""
        name, by = call.args["name"], call.by()

        def remove(expected: int | None) -> int:
            return call.use(MatrixService).delete(of.kind, name, by, expected=expected)

        return Reply(Made(change_document(call, of.kind, remove)))

    return delete


@route(
    "GET",
    "/entries",
    scope="read",
    tag="entries",
    targets="checked",
    query=EntryFilters,
    returns=Returns(EntryBody, "A page of entries", paged=True, etag=True),
)
def list_entries(call: Call[EntryFilters]) -> Reply:
    """List entries by name, with warnings and promotion from canary runs."""
    found = call.use(MatrixService).list_entries(**call.filters())
    said = call.use(EvidenceRemarks).remarks(row.name for row in found.items)
    return page_reply(found, lambda row: {**row.to_json(), **said[row.name].to_json()})


def _entry_remarks(call: Call[Any], name: str) -> dict[str, Any]:
    return call.use(EvidenceRemarks).remarks([name])[name].to_json()


ENTRY_ROUTES = document_routes(
    "Entry",
    "entries",
    scope="bless",
    body=EntryChange,
    shown=EntryBody,
    example=ENTRY,
    remarks=_entry_remarks,
)


def document_reply(
    row: Any,
    *,
    status: int = 200,
    headers: dict[str, str] | None = None,
    remarks: dict[str, Any] | None = None,
) -> Reply:
    """Return a stored document, with an entity tag of its revision and its remarks."""
    body = {**row.to_json(), **(remarks or {})}
    etag = etag_with_remarks(row.etag, remarks) if remarks else row.etag
    return Reply(body, status=status, headers=headers or {}, etag=etag)


def change_document(call: Call[Any], kind: Kind, change: Callable[[int | None], T]) -> T:
    """Change a document if ``If-Match`` names its current revision, which the function gets."""
    if "If-Match" not in request.headers:
        return change(None)
    expected = _expected(call, kind)
    try:
        return change(expected)
    except Conflict:
        _expected(call, kind)
        raise


def _expected(call: Call[Any], kind: Kind) -> int:
    row = call.use(MatrixService).get(kind, call.args["name"])
    tag, sent = row.etag.strip('"'), request.if_match
    if not sent.contains(tag) and tag not in {one.partition(".")[0] for one in sent.as_set()}:
        raise PreconditionFailed(
            f"{kind} {row.name} is now at revision {row.revision}",
            field="If-Match",
            value=request.headers["If-Match"],
            hint=f"read the document again; its entity tag is {row.etag}",
        )
    return row.revision
