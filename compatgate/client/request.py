"""Describe requests to the gate as plain data; derive them, and the methods, from operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime
from functools import update_wrapper
from importlib import import_module
from inspect import Parameter, Signature
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    ParamSpec,
    Self,
    TypeVar,
    get_origin,
    overload,
)
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Struct, structs, to_builtins

from compatgate.errors import BadInput
from compatgate.kit.http.schemas import Page
from compatgate.kit.operations import Declared

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
_SILENCE_S = 60.0
"""Timeout of a log stream in seconds; the gate sends data at least every ten seconds."""
P = ParamSpec("P")
R = TypeVar("R")
Found = TypeVar("Found")
SIZE = 500
"""Items per page of an iteration."""


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


class Operation(Generic[P, R, Found]):
    """A method of a client; ``Client.show_run.request`` makes its request without sending it."""

    def __init__(self, request: Callable[P, R], how: str) -> None:
        self.request = request
        self._how = how
        self.__doc__ = request.__doc__

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: Client, owner: type) -> Callable[P, Found]: ...
    def __get__(self, client: Client | None, owner: type) -> Any:
        if client is None:
            return self
        how, make = getattr(client, self._how), self.request

        def call(*args: P.args, **named: P.kwargs) -> Any:
            return how(make(*args, **named))

        return update_wrapper(call, make)


def single(request: Callable[P, Request[A]]) -> Operation[P, Request[A], A]:
    """Make an operation with one answer."""
    return Operation(request, "send")


def listing(request: Callable[P, Request[Page[T]]]) -> Operation[P, Request[Page[T]], Items[T]]:
    """Make an operation that returns a list in pages."""
    return Operation(request, "items")


def stream(request: Callable[P, Request[str]]) -> Operation[P, Request[str], Iterator[str]]:
    """Make an operation that streams text by line."""
    return Operation(request, "lines")


_FORMS: dict[str, Callable[..., Any]] = {"one": single, "pages": listing, "lines": stream}


def make_operation(declared: Declared) -> Any:
    """Return an operation, to be an attribute of the client's class."""
    signature = Signature(  # those of the path and required members of the body by place
        [
            Parameter(
                argument.name,
                Parameter.POSITIONAL_OR_KEYWORD if argument.positional else Parameter.KEYWORD_ONLY,
                default=Parameter.empty if argument.required else None,
                annotation=argument.annotation,
            )
            for argument in sorted(declared.arguments, key=lambda one: not one.positional)
        ]
    )

    def request(*args: Any, **named: Any) -> Request[Any]:
        return make_request(declared, signature.bind(*args, **named).arguments)

    request.__module__, request.__name__ = "compatgate.client.operations", declared.name
    request.__qualname__ = f"Operations.{declared.name}"
    listed = [f"    {one.name}: {one.about}" for one in declared.arguments if one.about]
    request.__doc__ = "\n".join([declared.about, *(["", "Args:", *listed] if listed else [])])
    request.__signature__ = signature  # type: ignore[attr-defined]
    return _FORMS[declared.form](request)


def make_request(declared: Declared, values: Mapping[str, Any]) -> Request[Any]:
    """Return the request of an operation; an argument that is None is not sent."""
    path: dict[str, Any] = {}
    query: dict[str, Any] = {**declared.fixed}
    members: dict[str, Any] = {}
    whole = if_match = None
    for argument in declared.arguments:
        value = values.get(argument.name)
        match argument.place:
            case "path":
                path[argument.key] = value
            case "query":
                query[argument.key] = value
            case "body" if value is not None:
                members[argument.key] = _plain(value)
            case "whole":
                whole = value
            case "header":
                if_match = entity_tag(value)
    answer: Any = str if declared.answer == "text" else Any
    accept = "*/*" if declared.answer == "text" else JSON
    module, colon, name = declared.answer.partition(":")
    if colon:
        answer = getattr(import_module(module), name)
    if declared.form == "pages":
        query |= {"limit": None, "cursor": None}
        answer = Page[answer] if colon else answer
    elif declared.form == "lines":
        accept = EVENTS if values.get("follow") else "text/plain"
    return Request(
        method=declared.method,
        path=declared.path,
        answer=answer,
        values=path,
        query=query,
        body=_body(declared, whole, members),
        media=YAML if isinstance(whole, str) else JSON,
        accept=accept,
        if_match=if_match,
        repeatable=declared.repeatable or bool(values.get("dry_run")),
        patience=_SILENCE_S if declared.form == "lines" else LONG_S if declared.slow else None,
        refusal=declared.refusal,
    )


def _body(declared: Declared, whole: Any, members: dict[str, Any]) -> Any:
    """Return the body: the whole one, with the reason of a change; or its members."""
    if whole is None:
        takes = any(argument.place in ("body", "whole") for argument in declared.arguments)
        return members if takes else None
    if "reason" in members:
        plain = to_builtins(whole) if isinstance(whole, Struct) else whole
        return {name: value for name, value in {**plain, **members}.items() if value is not None}
    return list(whole) if declared.documents and not isinstance(whole, str) else whole


def _plain(value: Any) -> Any:
    """Return structs as objects without what they leave open; null in an object means itself."""
    if isinstance(value, Struct):
        return {name: item for name, item in to_builtins(value).items() if item is not None}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    return value
