"""Lists a page at a time: ``{"items": [...], "next": "..."}`` and a ``Link`` header."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from typing import Annotated, Any
from urllib.parse import urlencode

from flask import request
from msgspec import Meta, Struct

from compatgate.errors import BadInput
from compatgate.web.call import Reply

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
        """The parameters as the gate's lists take them."""
        return {name: getattr(self, name) for name in self.__struct_fields__}


def page(found: Any, render: Callable[[Any], Any]) -> Reply:
    """A page as an answer."""
    items = [render(item) for item in found.items]
    headers = {"Link": f'<{_next_url(found.next)}>; rel="next"'} if found.next else {}
    return Reply({"items": items, "next": found.next}, headers=headers)


def _next_url(cursor: str) -> str:
    query = {**request.args.to_dict(), "cursor": cursor}
    return f"{request.script_root}{request.path}?{urlencode(query)}"


def slice_page(items: Sequence[Any], paged: Paged) -> Part:
    """A page of a list that is in memory and does not change while the server runs.

    Raises:
        BadInput: a cursor that no page gave.
    """
    start = 0 if paged.cursor is None else _open(paged.cursor)
    end = start + paged.limit
    return Part(items[start:end], _seal(end) if end < len(items) else None)


def _seal(start: int) -> str:
    return urlsafe_b64encode(str(start).encode()).decode().rstrip("=")


def _open(cursor: str) -> int:
    try:
        text = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode("ascii")
    except ValueError:
        text = ""
    if not text.isdigit() or len(text) > 9:
        raise BadInput("is not a cursor", field="cursor", value=cursor, hint="take it from next")
    return int(text)
