"""Entity tags: answers that did not change are not sent again; changes name what they change."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, TypeVar

from flask import request

from compatgate.errors import Conflict
from compatgate.web.call import Call
from compatgate.web.errors import PreconditionFailed

T = TypeVar("T")


def digest(body: bytes) -> str:
    """The entity tag of a body that has no revision of its own."""
    return f'"{hashlib.blake2b(body, digest_size=16).hexdigest()}"'


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


def _expected(call: Call[Any], kind: Any) -> int:
    row = call.gate.matrix.get(kind, call.args["name"])
    if not request.if_match.contains(row.etag.strip('"')):
        raise PreconditionFailed(
            f"{kind} {row.name} is at revision {row.revision} by now",
            field="If-Match",
            value=request.headers["If-Match"],
            hint=f"read it again; its entity tag is {row.etag}",
        )
    return row.revision
