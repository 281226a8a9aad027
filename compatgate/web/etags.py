"""Entity tags: answers that did not change are not sent again; changes name what they change."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from flask import request

from compatgate.errors import Conflict, PreconditionFailed

if TYPE_CHECKING:
    from compatgate.web.call import Call

T = TypeVar("T")


def digest(body: bytes) -> str:
    """The entity tag of a body that has no revision of its own."""
    return f'"{hashlib.blake2b(body, digest_size=16).hexdigest()}"'


def remarked(etag: str, remarks: object) -> str:
    """The entity tag of a document that is shown with remarks; `guarded` takes it for the former.

    Remarks come and go without a revision.
    """
    mark = hashlib.blake2b(msgspec.json.encode(remarks), digest_size=6).hexdigest()
    return f'{etag[:-1]}.{mark}"'


def not_modified(etag: str) -> bool:
    """Whether the client has what it asks for (``If-None-Match``)."""
    return bool(request.headers.get("If-None-Match")) and request.if_none_match.contains_weak(
        etag.strip('"')
    )


def guarded(call: Call[Any], kind: Any, change: Callable[[int | None], T]) -> T:
    """Change a document, if it is still what ``If-Match`` names.

    Args:
        call: names the document.
        kind: of the document.
        change: is given the revision that the document must have; None: any.

    Raises:
        PreconditionFailed: it has another one by now.
    """
    if "If-Match" not in request.headers:
        return change(None)
    expected = _expected(call, kind)
    try:
        return change(expected)
    except Conflict:
        _expected(call, kind)
        raise


def _names(tag: str) -> bool:
    """Whether ``If-Match`` names a version, with or without what was shown besides."""
    given = request.if_match
    return given.contains(tag) or tag in {known.partition(".")[0] for known in given.as_set()}


def _expected(call: Call[Any], kind: Any) -> int:
    row = call.gate.matrix.get(kind, call.args["name"])
    if not _names(row.etag.strip('"')):
        raise PreconditionFailed(
            f"{kind} {row.name} is at revision {row.revision} by now",
            field="If-Match",
            value=request.headers["If-Match"],
            hint=f"read it again; its entity tag is {row.etag}",
        )
    return row.revision
