"""Serve the import of documents, whose dry run shows its effects."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from compatgate.kit.http.replies import Reply
from compatgate.kit.http.route import Call, Returns, route
from compatgate.service.changes.comparison.backtests import preview_import
from compatgate.service.gate.questions.service import Gate
from compatgate.service.matrix.documents.api import DOCUMENTS, FileName, read_sources
from compatgate.service.matrix.documents.document_api import ForceOption
from compatgate.service.matrix.documents.schemas import ImportBody
from compatgate.service.matrix.documents.service import MatrixService


class ImportOptions(ForceOption, frozen=True, forbid_unknown_fields=True):
    """Options of an import."""

    dry_run: Annotated[bool, Meta(description="return the changes without storing them")] = False
    reason: Annotated[str, Meta(max_length=2000)] | None = None
    file: FileName = "request"


@route(
    "POST",
    "/matrix/import",
    scope="bless",
    part="operate",
    tag="matrix",
    targets="checked",
    query=ImportOptions,
    reason="query",
    body=DOCUMENTS,
    slow=True,
    returns=Returns(ImportBody, "The changes, made or planned"),
    errors=(409,),
)
def import_matrix(call: Call[ImportOptions]) -> Reply:
    """Import documents as one revision, or not at all.

    The body is a JSON list of documents, or YAML documents, with at most one value for each 24
    bytes of the server's largest request. If there are mistakes, nothing changes; the error lists
    every mistake with its line and field. With `dry_run`, `preview` says which canary runs a
    blessing lacks, and which decisions of the last 30 days each waiver would allow.
    """
    sources = read_sources(call, call.query.file)
    by, dry_run = call.by(), call.query.dry_run
    result = call.use(MatrixService).import_documents(sources, by, dry_run=dry_run)
    preview = preview_import(call.use(Gate), result.edits) if dry_run else None
    return Reply({**result.to_json(), "preview": msgspec.to_builtins(preview)})
