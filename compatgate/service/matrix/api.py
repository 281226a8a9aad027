"""Serve entries, revisions, and the matrix as a whole: import, export, the packages report.

`document_routes` makes the routes that targets, entries and waivers share: create, show, change,
delete.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal
from urllib.parse import quote

import msgspec
from msgspec import Meta, Struct

from compatgate.core.matrix import Status
from compatgate.documents.sources import Source
from compatgate.documents.specs import Kind
from compatgate.documents.text import to_yaml
from compatgate.kit.http.links import API_PREFIX
from compatgate.kit.http.replies import Filter, Paged, Reply, Search, page
from compatgate.kit.http.requests import Since, Until
from compatgate.service.gate.decision_summaries import MOST
from compatgate.service.matrix.models import StoredDocument
from compatgate.service.matrix.schemas import (
    DECISIONS,
    ENTRY,
    TARGET,
    Changes,
    EntryBody,
    EntryChange,
    ImportBody,
    Made,
    PackagesReportBody,
    RevisionBody,
    RevisionDetail,
)
from compatgate.service.web.call import Call, guarded, stored
from compatgate.service.web.route import JSON, LARGEST, Body, NoQuery, Returns, Route, Scope, route


class Why(Struct, frozen=True, forbid_unknown_fields=True):
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


Remarks = Callable[[Call[Any], str], dict[str, Any]]


class _Documents(Struct, frozen=True):
    """A kind of document, for its routes.

    Attributes:
        plural: path segment.
        scope: required for a change.
        reads: body of a request.
        shown: type of a document in an answer.
        remarks: returns additional members of a document in an answer.
    """

    kind: Kind
    plural: str
    scope: Scope
    reads: Body
    shown: type
    remarks: Remarks

    @property
    def one(self) -> str:
        return self.kind.lower()

    @property
    def path(self) -> str:
        return f"/{self.plural}/{{name}}"


def document_routes(
    kind: Kind,
    plural: str,
    *,
    scope: Scope,
    body: type,
    shown: type,
    example: dict[str, Any],
    remarks: Remarks = lambda call, name: {},
) -> tuple[Route, ...]:
    """Return the routes of a kind of document.

    Args:
        kind: of the documents.
        plural: path segment.
        scope: required for a change.
        body: type of a document in a request.
        shown: type of a document in an answer.
        example: body of a create request.
        remarks: returns additional members of a document in an answer.
    """
    reads = Body(body, examples={kind.lower(): example})
    of = _Documents(kind, plural, scope, reads, shown, remarks)
    return (_create(of), _show(of), _change(of), _delete(of))


def _create(of: _Documents) -> Route:
    @route(
        "POST",
        f"/{of.plural}",
        scope=of.scope,
        tag=of.plural,
        name=f"create_{of.one}",
        what=of.one,
        body=of.reads,
        reason="body",
        returns=Returns(of.shown, f"The created {of.one}", status=201, etag=True),
        errors=(409,),
    )
    def create(call: Call[NoQuery]) -> Reply:
        """Create a {what}."""
        made = call.gate.matrix.create(of.kind, call.document(), call.by())
        where = f"{API_PREFIX}/{of.plural}/{quote(made.name)}"
        return stored(made, status=201, headers={"Location": where})

    return create


def _show(of: _Documents) -> Route:
    @route(
        "GET",
        of.path,
        scope="read",
        tag=of.plural,
        name=f"show_{of.one}",
        what=of.one,
        returns=Returns(of.shown, f"The {of.one}", etag=True),
        errors=(404,),
    )
    def show(call: Call[NoQuery]) -> Reply:
        """Show a {what}."""
        row = call.gate.matrix.get(of.kind, call.args["name"])
        return stored(row, remarks=of.remarks(call, row.name))

    return show


def _change(of: _Documents) -> Route:
    @route(
        "PUT",
        of.path,
        scope=of.scope,
        tag=of.plural,
        name=f"change_{of.one}",
        what=of.one,
        body=of.reads,
        reason="body",
        matches=True,
        returns=Returns(of.shown, f"The stored {of.one}", etag=True),
        errors=(404, 409),
    )
    def change(call: Call[NoQuery]) -> Reply:
        """Replace a {what} with the document in the request."""
        name, document, by = call.args["name"], call.document(), call.by()

        def replace(expected: int | None) -> StoredDocument:
            return call.gate.matrix.change(of.kind, name, document, by, expected=expected)

        return stored(guarded(call, of.kind, replace))

    return change


def _delete(of: _Documents) -> Route:
    @route(
        "DELETE",
        of.path,
        scope=of.scope,
        tag=of.plural,
        name=f"delete_{of.one}",
        what=of.one,
        query=Why,
        reason="query",
        matches=True,
        returns=Returns(Made, "The new revision"),
        errors=(404, 409),
    )
    def delete(call: Call[Why]) -> Reply:
        """Delete a {what}; its history stays."""
        name, by = call.args["name"], call.by()

        def remove(expected: int | None) -> int:
            return call.gate.matrix.delete(of.kind, name, by, expected=expected)

        return Reply(Made(guarded(call, of.kind, remove)))

    return delete


class EntryFilters(Paged, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of entries."""

    target: Filter | None = None
    status: Status | None = None
    component: Annotated[Filter, Meta(description="constrained component")] | None = None
    search: Search | None = None


@route(
    "GET",
    "/entries",
    scope="read",
    tag="entries",
    query=EntryFilters,
    returns=Returns(EntryBody, "A page of entries", paged=True, etag=True),
)
def list_entries(call: Call[EntryFilters]) -> Reply:
    """List entries by name, with warnings and promotion from canary runs."""
    found = call.gate.matrix.list_entries(**call.query.filters())
    said = call.gate.runs.remarks(row.name for row in found.items)
    return page(found, lambda row: {**row.to_json(), **said[row.name].to_json()})


def _remarks(call: Call[Any], name: str) -> dict[str, Any]:
    return call.gate.runs.remarks([name])[name].to_json()


documents = document_routes(
    "Entry",
    "entries",
    scope="bless",
    body=EntryChange,
    shown=EntryBody,
    example=ENTRY,
    remarks=_remarks,
)


class RevisionFilters(Paged, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of revisions."""

    author: Filter | None = None
    kind: Annotated[Kind, Meta(description="kind of a changed document")] | None = None
    name: Annotated[Filter, Meta(description="name of a changed document")] | None = None
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
    """Show a revision and its changes."""
    row = call.gate.matrix.show_revision(call.args["number"])
    return Reply({**row.to_json(), "changes": [change.to_json() for change in row.changes]})


class DiffFrom(Struct, frozen=True, forbid_unknown_fields=True, rename={"older": "from"}):
    """Options of a comparison."""

    older: (
        Annotated[
            int,
            Meta(ge=0, le=LARGEST["int"], description="older revision; default: the previous one"),
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


YAML = "application/yaml"
_YAML_TYPES = (YAML, "application/x-yaml", "text/yaml", "text/x-yaml")


def _document(kind: str, example: dict[str, Any]) -> dict[str, Any]:
    body = {key: value for key, value in example.items() if key != "reason"}
    return {"apiVersion": "compatgate.dev/v1", "kind": kind, **body}


class ImportOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """Options of an import."""

    dry_run: Annotated[bool, Meta(description="return the changes without making them")] = False
    reason: Annotated[str, Meta(max_length=2000)] | None = None
    file: Annotated[
        str, Meta(min_length=1, max_length=200, description="name of the file in errors")
    ] = "request"


@route(
    "POST",
    "/matrix/import",
    scope="bless",
    tag="matrix",
    query=ImportOptions,
    reason="query",
    body=Body(
        Annotated[list[dict[str, Any]], Meta(min_length=1)],
        media=(JSON, *_YAML_TYPES),
        examples={"matrix": [_document("Target", TARGET), _document("Entry", ENTRY)]},
    ),
    returns=Returns(ImportBody, "The changes, made or planned"),
)
def import_matrix(call: Call[ImportOptions]) -> Reply:
    """Import documents as one revision, or not at all.

    The body is a JSON list of documents, or YAML documents. If there are mistakes, nothing changes;
    the error lists every mistake with its line and field.
    """
    sources = [Source(call.query.file, call.text())]
    by, dry_run = call.by(), call.query.dry_run
    return Reply(call.gate.matrix.import_documents(sources, by, dry_run=dry_run).to_json())


class ExportOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """Options of an export."""

    revision: Annotated[int, Meta(ge=0, le=LARGEST["int"])] | None = None
    format: Literal["json", "yaml"] = "json"


@route(
    "GET",
    "/matrix/export",
    scope="read",
    tag="matrix",
    query=ExportOptions,
    returns=Returns(
        list[dict[str, Any]], "Every document of the matrix", media=(JSON, YAML), etag=True
    ),
    errors=(404,),
)
def export_matrix(call: Call[ExportOptions]) -> Reply:
    """Export the matrix, now or at an older revision: targets, entries, waivers."""
    documents = call.gate.matrix.export(revision=call.query.revision)
    if call.query.format == "json":
        return Reply(documents)
    return Reply(to_yaml(documents).encode(), media=YAML)


class PackagesReportOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """Options of the packages report."""

    target: Annotated[Filter, Meta(description="the only target to check")] | None = None
    since: Since | None = None
    decisions: Annotated[
        int, Meta(ge=1, le=MOST, description="most decisions to check, the newest")
    ] = DECISIONS


@route(
    "GET",
    "/matrix/packages-report",
    scope="read",
    tag="matrix",
    query=PackagesReportOptions,
    returns=Returns(PackagesReportBody, "What `packages: enforce` would stop"),
    errors=(404,),
)
def packages_report(call: Call[PackagesReportOptions]) -> Reply:
    """Report what `packages: enforce` would stop on the targets that audit packages.

    The report evaluates the stacks of decisions since a time (default: 30 days ago), and stacks
    that represent blessed and deprecated entries, under `packages: enforce`. Nothing is logged.
    """
    asked = call.query
    return Reply(
        msgspec.to_builtins(
            call.gate.matrix.packages_report(
                target=asked.target, since=asked.since, decisions=asked.decisions
            )
        )
    )
