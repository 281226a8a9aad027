"""Describe requests to the gate as plain data, and read lists page by page."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, get_origin
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Struct, structs

from compatgate.errors import BadInput
from compatgate.kit.http.schemas import Page

if TYPE_CHECKING:
    from compatgate.client.clients import Client

A = TypeVar("A")
T = TypeVar("T")
Method = Literal["GET", "POST", "PUT", "DELETE"]
Moment = datetime | date | str
"""A time, UTC without a zone; a date means its start (``since``) or end (``until``)."""
PREFIX = "/api/v1"
JSON = "application/json"
YAML = "application/yaml"
EVENTS = "text/event-stream"
LONG_S = 600.0
"""Timeout in seconds of requests that may take minutes."""


class Request(Struct, Generic[A], frozen=True, kw_only=True):
    """One request to the gate.

    ``path`` is a template with prefix, ``/api/v1/targets/{name}``, whose values are ``values``; a
    query parameter that is None is not sent; a body that is text or bytes is sent unchanged, any
    other as JSON. ``answer`` is the type of the answer's body; bytes and text are not JSON.
    ``if_match``: entity tag that the changed document must have; ``repeatable``: a retry is safe;
    ``patience``: minimum timeout in seconds for each part of the answer; ``refusal``: errors have
    the form of the answer, not of problems.
    """

    method: Method
    path: str
    answer: Any
    values: dict[str, Any] = {}
    query: dict[str, Any] = {}
    body: Any = None
    media: str = JSON
    accept: str = JSON
    if_match: str | None = None
    repeatable: bool = True
    patience: float | None = None
    refusal: bool = False

    @property
    def url(self) -> str:
        """Return path and query of the URL; refuse an empty value, which would name another."""
        values = {}
        for name, value in self.values.items():
            text = quote(str(value), safe="")
            if not text:
                raise BadInput("must not be empty", field=name, hint="give a name or id")
            values[name] = text.replace(".", "%2E") if text in (".", "..") else text
        path = self.path.format_map(values)
        given = {name: _text(value) for name, value in self.query.items() if value is not None}
        return f"{path}?{urlencode(given)}" if given else path

    def content(self) -> bytes | None:
        """Return the encoded body."""
        if self.body is None or isinstance(self.body, bytes):
            return self.body
        return self.body.encode() if isinstance(self.body, str) else msgspec.json.encode(self.body)

    def plain(self) -> Request[Any]:
        """Return the same request with the plain JSON as its answer, without types."""
        answer: Any = dict[str, Any]
        if self.answer is Any:
            answer = Any
        elif get_origin(self.answer) is Page:
            answer = Page[dict[str, Any]]
        return structs.replace(self, answer=answer)

    def as_bytes(self) -> Request[bytes]:
        """Return the same request with the undecoded body as its answer."""
        answer: Any = structs.replace(self, answer=bytes)
        return answer  # type: ignore[no-any-return]

    def where(self, **query: Any) -> Request[A]:
        """Return the same request with other query parameters."""
        return structs.replace(self, query={**self.query, **query})


def entity_tag(version: str | int | None) -> str | None:
    """Return an entity tag unchanged, or that of a document's revision."""
    return f'"r{version}"' if isinstance(version, int) else version


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=UTC)
        return aware.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return value.isoformat() if isinstance(value, date) else str(value)


SIZE = 500
"""Items per page of an iteration."""


class Items(Generic[T]):
    """The items of a list; iteration requests one page at a time."""

    def __init__(self, client: Client, request: Request[Page[T]]) -> None:
        self._client = client
        self._request = request

    def page(self, cursor: str | None = None, *, size: int | None = None) -> Page[T]:
        """Return the first page, or the one at a cursor, ``next`` of the page before.

        ``size`` is the maximum number of items, 1 to 1000; None: the gate's default.
        """
        return self._client.send(self._request.where(cursor=cursor, limit=size))

    def pages(self, *, size: int = SIZE) -> Iterator[Page[T]]:
        """Yield every page."""
        cursor: str | None = None
        while True:
            page = self.page(cursor, size=size)
            yield page
            if (cursor := page.next) is None:
                return

    def __iter__(self) -> Iterator[T]:
        for page in self.pages():
            yield from page.items
