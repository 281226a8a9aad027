"""Serve targets, pools, entries and waivers, and make the routes that all kinds share."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from functools import partial
from typing import Annotated, Any, TypeVar
from urllib.parse import quote

from flask import request
from msgspec import Meta, Struct, convert

from compatgate.documents.specs import Kind
from compatgate.errors import Conflict, PreconditionFailed
from compatgate.kit.database.tables import Page
from compatgate.kit.http.links import API_PREFIX
from compatgate.kit.http.replies import Reply, etag_with_remarks, page_reply
from compatgate.kit.http.route import Body, Call, NoQuery, Returns, Route, Routes, Scope
from compatgate.kit.http.schemas import Filter, ListQuery, Search
from compatgate.service.matrix.documents.models import Pool
from compatgate.service.matrix.documents.schemas import (
    ENTRY,
    TARGET,
    WAIVER,
    EntryBody,
    EntryChange,
    EntryFilters,
    Made,
    PoolRowBody,
    TargetBody,
    TargetChange,
    WaiverBody,
    WaiverChange,
)
from compatgate.service.matrix.documents.service import EvidenceRemarks, MatrixService

entries_routes = Routes("entries", targets="checked")
T = TypeVar("T")
targets_routes = Routes("targets", targets="checked")
waivers_routes = Routes("waivers", targets="checked")


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


class _Documents(Struct, frozen=True):
    """Handles requests about one kind of document; ``remarks`` adds members to an answer."""

    kind: Kind
    plural: str
    remarks: Callable[[Call[Any], str], dict[str, Any]]

    def create(self, call: Call[Any]) -> Reply:
        """Create the {what} in the request."""
        made = call.use(MatrixService).create(self.kind, call.document(), call.by())
        where = f"{API_PREFIX}/{self.plural}/{quote(made.name)}"
        return document_reply(made, status=201, headers={"Location": where})

    def show(self, call: Call[NoQuery]) -> Reply:
        """Show the {what} with this name."""
        row = call.use(MatrixService).get(self.kind, call.args["name"])
        named = [row.name] if row.kind == "Target" else row.document["spec"]["targets"]
        call.principal.require_any(named, f"the {row.kind.lower()} {row.name}")
        return document_reply(row, remarks=self.remarks(call, row.name))

    def change(self, call: Call[Any]) -> Reply:
        """Replace the {what} with the document in the request."""
        name, document, by = call.args["name"], call.document(), call.by()
        replace = partial(call.use(MatrixService).change, self.kind, name, document, by)
        return document_reply(change_document(call, self.kind, replace))

    def delete(self, call: Call[ChangeReason]) -> Reply:
        """Delete the {what}; its history stays."""
        remove = partial(call.use(MatrixService).delete, self.kind, call.args["name"], call.by())
        return Reply(Made(change_document(call, self.kind, remove)))


def document_routes(
    kind: Kind,
    plural: str,
    *,
    part: Scope | None = None,
    body: type,
    shown: type,
    example: dict[str, Any],
    remarks: Callable[[Call[Any], str], dict[str, Any]] = lambda call, name: {},
) -> tuple[Route, ...]:
    """Return the routes of a kind of document: create, show, change, delete.

    ``part`` is a scope that is enough for a change that needs less, which the matrix checks.
    ``remarks`` returns additional members of a document in an answer.
    """
    one, path = kind.lower(), f"/{plural}/{{name}}"
    of, own = _Documents(kind, plural, remarks), Routes(plural, targets="checked", scope="bless")
    query = ForceOption if kind == "Target" else NoQuery  # only a target's policy names suites
    reads = Body(body, examples={one: example}, argument=one)
    sent: dict[str, Any] = {"what": one, "query": query, "body": reads, "reason": "body"}
    made = Returns(shown, f"The created {one}", status=201, etag=True)
    stored = Returns(shown, f"The stored {one}", etag=True)
    checked: dict[str, Any] = {"matches": True, "errors": (404, 409)}
    asked: dict[str, Any] = {"what": one, "query": ChangeReason, "reason": "query"}
    return (
        own.post(f"/{plural}", made, name=f"create_{one}", errors=(409,), **sent)(of.create),
        own.shows(path, shown, f"The {one}", name=f"show_{one}", what=one)(of.show),
        own.put(path, stored, name=f"change_{one}", part=part, **sent, **checked)(of.change),
        own.delete(
            path, Returns(Made, "The new revision"), name=f"delete_{one}", **asked, **checked
        )(of.delete),
    )


@entries_routes.pages("/entries", EntryBody, "A page of entries", query=EntryFilters)
def list_entries(call: Call[EntryFilters]) -> Reply:
    """List entries by name, with warnings and promotion from canary runs."""
    found = call.use(MatrixService).list_entries(**call.filters())
    said = call.use(EvidenceRemarks).remarks(row.name for row in found.items)
    return page_reply(found, lambda row: {**row.to_json(), **said[row.name].to_json()})


ENTRY_ROUTES = document_routes(
    "Entry",
    "entries",
    body=EntryChange,
    shown=EntryBody,
    example=ENTRY,
    remarks=lambda call, name: call.use(EvidenceRemarks).remarks([name])[name].to_json(),
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


def change_document(call: Call[Any], kind: Kind, change: Callable[..., T]) -> T:
    """Change a document if ``If-Match`` names its current revision, the one then expected."""
    if "If-Match" not in request.headers:
        return change()
    expected = _expected(call, kind)
    try:
        return change(expected=expected)
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


class TargetFilters(ListQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of targets."""

    label: Annotated[Filter, Meta(examples=["tier=prod"])] | None = None
    owner: Filter | None = None
    gpu: Annotated[Filter, Meta(description="GPU of any pool, exactly as written")] | None = None
    driver: Annotated[Filter, Meta(description="driver of any pool, exactly as written")] | None = (
        None
    )
    search: Search | None = None


class PoolFilters(ListQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of pools."""

    target: Filter | None = None
    gpu: Annotated[Filter, Meta(description="GPU, exactly as written")] | None = None
    driver: Annotated[Filter, Meta(description="driver, exactly as written")] | None = None


@targets_routes.pages("/targets", TargetBody, "A page of targets", query=TargetFilters)
def list_targets(call: Call[TargetFilters]) -> Reply:
    """List targets by name."""
    found = call.use(MatrixService).list_targets(**call.filters())
    return page_reply(found, lambda row: row.to_json())


TARGET_ROUTES = document_routes(
    "Target",
    "targets",
    part="operate",
    body=TargetChange,
    shown=TargetBody,
    example=TARGET,
)


@targets_routes.pages(
    "/targets/{name}/pools",
    PoolRowBody,
    "A page of the target's pools",
    query=ListQuery,
    errors=(404,),
)
def list_target_pools(call: Call[ListQuery]) -> Reply:
    """List the pools of a target."""
    call.principal.require_targets([call.args["name"]])
    name = call.use(MatrixService).get("Target", call.args["name"]).name
    return _pools_reply(call.use(MatrixService).list_pools(target=name, **call.query.filters()))


def _pools_reply(found: Page[Pool]) -> Reply:
    return page_reply(found, lambda row: convert(row, PoolRowBody, from_attributes=True))


@targets_routes.pages("/pools", PoolRowBody, "A page of pools", query=PoolFilters)
def list_pools(call: Call[PoolFilters]) -> Reply:
    """List the pools of all targets by target and name."""
    return _pools_reply(call.use(MatrixService).list_pools(**call.filters()))


class WaiverFilters(ListQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of waivers."""

    target: Filter | None = None
    owner: Filter | None = None
    active_on: (
        Annotated[date, Meta(description="only waivers that are valid on this day")] | None
    ) = None
    search: Search | None = None


@waivers_routes.pages("/waivers", WaiverBody, "A page of waivers", query=WaiverFilters)
def list_waivers(call: Call[WaiverFilters]) -> Reply:
    """List waivers by name."""
    found = call.use(MatrixService).list_waivers(**call.filters())
    return page_reply(found, lambda row: row.to_json())


WAIVER_ROUTES = document_routes(
    "Waiver", "waivers", body=WaiverChange, shown=WaiverBody, example=WAIVER
)
