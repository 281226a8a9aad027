"""Serve revisions, and the matrix as a whole: import and export."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from compatgate.documents.sources import Source
from compatgate.documents.text import to_yaml
from compatgate.kit.http.replies import Reply, page_reply
from compatgate.kit.http.route import JSON, LARGEST, Body, Call, NoQuery, Returns, Routes
from compatgate.service.matrix.documents.document_api import ForceOption
from compatgate.service.matrix.documents.imports import SYNC_NAME_PATTERN, SyncOptions
from compatgate.service.matrix.documents.schemas import (
    ENTRY,
    TARGET,
    Changes,
    RevisionBody,
    RevisionDetail,
    RevisionFilters,
    SyncBody,
)
from compatgate.service.matrix.documents.service import MatrixService

routes = Routes("matrix", scope="bless")


@routes.pages("/revisions", RevisionBody, "A page of revisions", query=RevisionFilters)
def list_revisions(call: Call[RevisionFilters]) -> Reply:
    """List revisions of the matrix, newest first."""
    return page_reply(call.use(MatrixService).list_revisions(**call.query.filters()))


@routes.shows("/revisions/{number:int}", RevisionDetail, "The revision")
def show_revision(call: Call[NoQuery]) -> Reply:
    """Show a revision and its changes."""
    return Reply(call.use(MatrixService).show_revision(call.args["number"]))


class DiffFrom(Struct, frozen=True, forbid_unknown_fields=True, rename={"older": "from"}):
    """Options of a comparison."""

    older: (
        Annotated[
            int,
            Meta(ge=0, le=LARGEST["int"], description="older revision; default: the previous one"),
        ]
        | None
    ) = None


@routes.shows(
    "/revisions/{number:int}/diff", Changes, "The differences, document by document", query=DiffFrom
)
def diff_revisions(call: Call[DiffFrom]) -> Reply:
    """Compare a revision with an older one."""
    newer: int = call.args["number"]
    older = max(newer - 1, 0) if call.query.older is None else call.query.older
    changes = [edit.to_change() for edit in call.use(MatrixService).diff(older, newer)]
    return Reply(Changes(older, newer, changes))


YAML = "application/yaml"
_YAML_TYPES = (YAML, "application/x-yaml", "text/yaml", "text/x-yaml")


def _example_document(kind: str, example: dict[str, Any]) -> dict[str, Any]:
    body = {key: value for key, value in example.items() if key != "reason"}
    return {"apiVersion": "compatgate.dev/v1", "kind": kind, **body}


DOCUMENTS = Body(
    Annotated[list[dict[str, Any]], Meta(min_length=1)],
    media=(JSON, *_YAML_TYPES),
    examples={"matrix": [_example_document("Target", TARGET), _example_document("Entry", ENTRY)]},
    argument="documents",
)
FileName = Annotated[
    str, Meta(min_length=1, max_length=200, description="name of the file in errors")
]


def read_sources(call: Call[Any], file: str) -> list[Source]:
    """Return the documents of a request as a file of this name."""
    return [Source(file, call.text(), call.settings.max_values)]


class SyncQuery(ForceOption, frozen=True, forbid_unknown_fields=True):
    """Options of a sync."""

    name: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=128,
                pattern=SYNC_NAME_PATTERN,
                description="name of the sync; the label `compatgate.dev/sync` of its documents",
            ),
        ]
        | None
    ) = None
    prune: Annotated[
        bool,
        Meta(description="delete documents of this sync that are not in the body; needs `name`"),
    ] = False
    take_over: Annotated[
        bool, Meta(description="take over documents that belong to other syncs")
    ] = False
    dry_run: Annotated[bool, Meta(description="return the plan without changing anything")] = False
    reason: Annotated[str, Meta(max_length=2000)] | None = None
    file: FileName = "request"


@routes.post(
    "/matrix/sync",
    Returns(SyncBody, "The changes, made or planned"),
    targets="checked",
    part="operate",
    query=SyncQuery,
    reason="query",
    body=DOCUMENTS,
    slow=True,
    errors=(409,),
)
def sync_matrix(call: Call[SyncQuery]) -> Reply:
    """Make the stored matrix equal to the documents of the body, as one revision or not at all.

    A sync with a name owns what it stores. It deletes only documents that carry its name, and only
    with `prune`. It adopts documents without a sync; those of another one only with `take_over`.
    The body is as for `POST /matrix/import`. If there are mistakes, nothing changes.
    """
    asked = call.query
    sources = read_sources(call, asked.file)
    options = SyncOptions(asked.name, asked.prune, asked.take_over)
    found = call.use(MatrixService).sync(sources, options, call.by(), dry_run=asked.dry_run)
    return Reply(found)


class ExportOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """Options of an export."""

    revision: Annotated[int, Meta(ge=0, le=LARGEST["int"])] | None = None
    format: Literal["json", "yaml"] = "json"


@routes.get(
    "/matrix/export",
    Returns(list[dict[str, Any]], "Every document of the matrix", media=(JSON, YAML), etag=True),
    query=ExportOptions,
    errors=(404,),
)
def export_matrix(call: Call[ExportOptions]) -> Reply:
    """Export the matrix, now or at an older revision: targets, entries, waivers."""
    documents = call.use(MatrixService).export(revision=call.query.revision)
    if call.query.format == "json":
        return Reply(documents)
    return Reply(to_yaml(documents).encode(), media=YAML)
