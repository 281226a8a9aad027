"""Describe answers: headers, bodies, entity tags, and lists page by page.

Every answer carries a request id and limits for browsers. A list is ``{"items": [...],
"next": "..."}`` with a ``Link`` header. A body without a revision has the digest of its bytes as
its entity tag.
"""

from __future__ import annotations

import hashlib
import os
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlencode

import msgspec
from flask import request
from msgspec import Meta, Struct

from compatgate.errors import BadInput

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

REQUEST_ID = "X-Request-Id"
ENVIRON = "compatgate.request_id"
CSP = "Content-Security-Policy"
SECURITY = [
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
]
NOTHING_ACTIVE = (CSP, "default-src 'none'; frame-ancestors 'none'")
"""The policy of every answer that states none."""
_GIVEN = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
Headers = list[tuple[str, str]]


class Envelope:
    """A WSGI application that adds the headers to another application's answers."""

    def __init__(self, inner: WSGIApplication) -> None:
        self._inner = inner

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request."""
        number = request_id(environ.get("HTTP_X_REQUEST_ID", ""))
        environ[ENVIRON] = number

        def start(
            status: str, headers: Headers, exc_info: Any = None, /
        ) -> Callable[[bytes], object]:
            return start_response(status, complete_headers(headers, number), exc_info)

        return self._inner(environ, start)


def complete_headers(headers: Headers, number: str) -> Headers:
    """Return the headers of an answer, with those that every answer carries."""
    headers.append((REQUEST_ID, number))
    headers += SECURITY
    if all(name != CSP for name, _ in headers):
        headers.append(NOTHING_ACTIVE)
    return headers


def request_id(given: str) -> str:
    """Return the client's request id if it is safe, else a new one."""
    return given if given and _GIVEN.fullmatch(given) else f"{_prefix}-{next(_numbers):x}"


_prefix = ""
_numbers = count(1)


def _new_process() -> None:
    global _prefix, _numbers
    _prefix, _numbers = os.urandom(8).hex(), count(1)


_new_process()
os.register_at_fork(after_in_child=_new_process)


class Reply(Struct, frozen=True):
    """An answer.

    Attributes:
        body: bytes as they are, an iterator of pieces to stream, or anything that JSON can carry.
        etag: strong entity tag; a GET without one gets the digest of its body.
        secret: nobody may store the answer.
    """

    body: Any
    status: int = 200
    headers: dict[str, str] = {}
    etag: str | None = None
    media: str = "application/json"
    secret: bool = False


def digest(body: bytes) -> str:
    """Return the entity tag of a body that has no revision of its own."""
    return f'"{hashlib.blake2b(body, digest_size=16).hexdigest()}"'


def remarked(etag: str, remarks: object) -> str:
    """Return the entity tag of a document shown with remarks; `guarded` accepts either tag.

    Remarks come and go without a revision.
    """
    mark = hashlib.blake2b(msgspec.json.encode(remarks), digest_size=6).hexdigest()
    return f'{etag[:-1]}.{mark}"'


def not_modified(etag: str) -> bool:
    """Return whether the client has the current version (``If-None-Match``)."""
    return bool(request.headers.get("If-None-Match")) and request.if_none_match.contains_weak(
        etag.strip('"')
    )


Limit = Annotated[int, Meta(ge=1, le=1000, description="items on a page")]
Cursor = Annotated[
    str, Meta(min_length=1, max_length=2000, description="`next` of the page before; opaque")
]
Filter = Annotated[str, Meta(min_length=1, max_length=1000)]
Search = Annotated[str, Meta(max_length=200, description="part of the name, in any case")]


class Part(Struct, frozen=True):
    """A page of a list that is in memory."""

    items: Sequence[Any]
    next: str | None


class Paged(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Query parameters of every list."""

    limit: Limit = 100
    cursor: Cursor | None = None

    def filters(self) -> dict[str, Any]:
        """Return the parameters as the gate's lists take them."""
        return {name: getattr(self, name) for name in self.__struct_fields__}


def page(found: Any, render: Callable[[Any], Any]) -> Reply:
    """Return a page as an answer."""
    items = [render(item) for item in found.items]
    headers = {"Link": f'<{_next_url(found.next)}>; rel="next"'} if found.next else {}
    return Reply({"items": items, "next": found.next}, headers=headers)


def _next_url(cursor: str) -> str:
    query = {**request.args.to_dict(), "cursor": cursor}
    return f"{request.script_root}{request.path}?{urlencode(query)}"


def slice_page(items: Sequence[Any], paged: Paged) -> Part:
    """Return a page of a list that is in memory and does not change while the server runs.

    Raises:
        BadInput: a cursor that no page gave.
    """
    start = 0 if paged.cursor is None else _decode_cursor(paged.cursor)
    end = start + paged.limit
    return Part(items[start:end], _encode_cursor(end) if end < len(items) else None)


def _encode_cursor(start: int) -> str:
    return urlsafe_b64encode(str(start).encode()).decode().rstrip("=")


def _decode_cursor(cursor: str) -> int:
    try:
        text = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode("ascii")
    except ValueError:
        text = ""
    if not text.isdigit() or len(text) > 9:
        raise BadInput("is not a cursor", field="cursor", value=cursor, hint="take it from next")
    return int(text)
