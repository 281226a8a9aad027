"""The matrix as a whole: import and export."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from compatgate.documents.sources import Source
from compatgate.documents.write import to_yaml
from compatgate.store.decision_days import MOST
from compatgate.web.call import Call, Reply
from compatgate.web.paging import Filter
from compatgate.web.query import Since
from compatgate.web.route import JSON, LARGEST, Body, Returns, route
from compatgate.wire.examples import ENTRY, TARGET
from compatgate.wire.matrix import ImportBody
from compatgate.wire.packages import DECISIONS, PackagesReportBody

YAML = "application/yaml"
_YAML_TYPES = (YAML, "application/x-yaml", "text/yaml", "text/x-yaml")


def _document(kind: str, example: dict[str, Any]) -> dict[str, Any]:
    body = {key: value for key, value in example.items() if key != "reason"}
    return {"apiVersion": "compatgate.dev/v1", "kind": kind, **body}


class ImportOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """How to import."""

    dry_run: Annotated[bool, Meta(description="say what would change, and change nothing")] = False
    reason: Annotated[str, Meta(max_length=2000)] | None = None
    file: Annotated[
        str, Meta(min_length=1, max_length=200, description="what errors call the file")
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
    returns=Returns(ImportBody, "What changed, or would change"),
)
def import_matrix(call: Call[ImportOptions]) -> Reply:
    """Import documents, as one revision or not at all.

    The body is a list of documents as JSON, or YAML documents. Every mistake is reported, with its
    line and field; then nothing is changed.
    """
    sources = [Source(call.query.file, call.text())]
    by, dry_run = call.by(), call.query.dry_run
    return Reply(call.gate.matrix.import_documents(sources, by, dry_run=dry_run).to_json())


class ExportOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """What to export, and how."""

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
    """What the report looks at."""

    target: Annotated[Filter, Meta(description="only this one")] | None = None
    since: Since | None = None
    decisions: Annotated[int, Meta(ge=1, le=MOST, description="at most so many, the newest")] = (
        DECISIONS
    )


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
    """Say what `packages: enforce` would stop on the targets that audit packages.

    Stacks of the decisions of the last 30 days, or since another moment, and stacks that stand for
    blessed and deprecated entries are evaluated again, as `enforce` would. Nothing is logged.
    """
    asked = call.query
    return Reply(
        msgspec.to_builtins(
            call.gate.matrix.packages_report(
                target=asked.target, since=asked.since, decisions=asked.decisions
            )
        )
    )
