"""The routes that targets, entries and waivers have alike: create, show, change, delete."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any
from urllib.parse import quote

from msgspec import Meta, Struct

from compatgate.documents.specs import Kind
from compatgate.store.rows import Stored
from compatgate.web.call import Call, Reply, stored
from compatgate.web.etags import guarded
from compatgate.web.route import PREFIX, Body, NoQuery, Returns, Route, Scope, route
from compatgate.wire.matrix import Made


class Why(Struct, frozen=True, forbid_unknown_fields=True):
    """Why a change without a body is made."""

    reason: (
        Annotated[str, Meta(max_length=2000, description="why; or say it in X-Compatgate-Reason")]
        | None
    ) = None


Remarks = Callable[[Call[Any], str], dict[str, Any]]


class _Documents(Struct, frozen=True):
    """One kind of document, as its routes need it.

    Attributes:
        plural: as the path has it.
        scope: that a change needs.
        reads: body of a request.
        shown: type of a document in an answer.
        remarks: members that are shown besides, of a document by its name.
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
    """The routes of one kind of document.

    Args:
        kind: of the documents.
        plural: as the path has it.
        scope: that a change needs.
        body: type of a document in a request.
        shown: type of a document in an answer.
        example: a body that creates one.
        remarks: members that are shown besides, of a document by its name.
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
        returns=Returns(of.shown, f"The {of.one} that was made", status=201, etag=True),
        errors=(409,),
    )
    def create(call: Call[NoQuery]) -> Reply:
        """Create a {what}."""
        made = call.gate.matrix.create(of.kind, call.document(), call.by())
        where = f"{PREFIX}/{of.plural}/{quote(made.name)}"
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
        returns=Returns(of.shown, f"The {of.one} as it is now", etag=True),
        errors=(404, 409),
    )
    def change(call: Call[NoQuery]) -> Reply:
        """Replace a {what} by the document that is sent, whole."""
        name, document, by = call.args["name"], call.document(), call.by()

        def replace(expected: int | None) -> Stored:
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
        returns=Returns(Made, "The revision that this made"),
        errors=(404, 409),
    )
    def delete(call: Call[Why]) -> Reply:
        """Delete a {what}; its history stays."""
        name, by = call.args["name"], call.by()

        def remove(expected: int | None) -> int:
            return call.gate.matrix.delete(of.kind, name, by, expected=expected)

        return Reply(Made(guarded(call, of.kind, remove)))

    return delete
