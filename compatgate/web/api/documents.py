"""The routes that targets, entries and waivers have alike: create, show, change, delete."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any
from urllib.parse import quote

from msgspec import Meta, Struct

from compatgate.documents.specs import Kind
from compatgate.web.call import Call, Reply, stored
from compatgate.web.etags import guarded
from compatgate.web.models.matrix import Made
from compatgate.web.route import PREFIX, Body, NoQuery, Returns, Route, Scope, route


class Why(Struct, frozen=True, forbid_unknown_fields=True):
    """Why a change without a body is made."""

    reason: (
        Annotated[str, Meta(max_length=2000, description="why; or say it in X-Compatgate-Reason")]
        | None
    ) = None


def document_routes(
    kind: Kind,
    plural: str,
    *,
    scope: Scope,
    body: type,
    shown: type,
    example: dict[str, Any],
    remarks: Callable[[Call[Any], str], dict[str, Any]] = lambda call, name: {},
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
    one, path = kind.lower(), f"/{plural}/{{name}}"
    reads = Body(body, examples={one: example})

    @route(
        "POST",
        f"/{plural}",
        scope=scope,
        tag=plural,
        name=f"create_{one}",
        what=one,
        body=reads,
        reason="body",
        returns=Returns(shown, f"The {one} that was made", status=201, etag=True),
        errors=(409,),
    )
    def create(call: Call[NoQuery]) -> Reply:
        """Create a {what}."""
        made = call.gate.matrix.create(kind, call.document(), call.by())
        where = f"{PREFIX}/{plural}/{quote(made.name)}"
        return stored(made, status=201, headers={"Location": where})

    @route(
        "GET",
        path,
        scope="read",
        tag=plural,
        name=f"show_{one}",
        what=one,
        returns=Returns(shown, f"The {one}", etag=True),
        errors=(404,),
    )
    def show(call: Call[NoQuery]) -> Reply:
        """Show a {what}."""
        row = call.gate.matrix.get(kind, call.args["name"])
        return stored(row, remarks=remarks(call, row.name))

    @route(
        "PUT",
        path,
        scope=scope,
        tag=plural,
        name=f"change_{one}",
        what=one,
        body=reads,
        reason="body",
        matches=True,
        returns=Returns(shown, f"The {one} as it is now", etag=True),
        errors=(404, 409),
    )
    def change(call: Call[NoQuery]) -> Reply:
        """Replace a {what} by the document that is sent, whole."""
        name, document, by = call.args["name"], call.document(), call.by()
        return stored(
            guarded(
                call,
                kind,
                lambda expected: call.gate.matrix.change(
                    kind, name, document, by, expected=expected
                ),
            )
        )

    @route(
        "DELETE",
        path,
        scope=scope,
        tag=plural,
        name=f"delete_{one}",
        what=one,
        query=Why,
        reason="query",
        matches=True,
        returns=Returns(Made, "The revision that this made"),
        errors=(404, 409),
    )
    def delete(call: Call[Why]) -> Reply:
        """Delete a {what}; its history stays."""
        name, by = call.args["name"], call.by()
        return Reply(
            Made(
                guarded(
                    call,
                    kind,
                    lambda expected: call.gate.matrix.delete(kind, name, by, expected=expected),
                )
            )
        )

    return (create, show, change, delete)
