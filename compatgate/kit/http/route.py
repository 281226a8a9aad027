"""Declare a route once: routing, checks, the client and the OpenAPI description derive from it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, ParamSpec, Protocol, TypeVar

from flask import request
from msgspec import Struct
from msgspec.structs import force_setattr

from compatgate.kit.http import requests as bodies
from compatgate.kit.http.links import API_PREFIX
from compatgate.kit.http.replies import Reply
from compatgate.kit.http.requests import REASON_HEADER as REASON
from compatgate.kit.http.requests import read_reason
from compatgate.kit.principal import Authorship, ScopeName

if TYPE_CHECKING:
    from compatgate.kit.principal import Principal

Scope = ScopeName
OPEN_SCOPES: tuple[Scope, ...] = ("read", "admission", "gate", "plan")
"""The scopes that an operator may give to everyone: they change nothing."""
TargetLimit = Literal["refused", "checked", "free"]
"""What a caller that is limited to targets meets: a refusal; its handler's check of the targets
that the request concerns; nothing, as the route concerns no target."""
Method = Literal["GET", "POST", "PUT", "DELETE"]
Q = TypeVar("Q", bound=Struct)
H = TypeVar("H")
R = TypeVar("R")
P = ParamSpec("P")
JSON = "application/json"
_PARAMETER = re.compile(r"\{(\w+)(?::(int|big))?\}")
LARGEST = {"int": 2**31 - 1, "big": 2**63 - 1}
"""Largest numbers of database columns."""
MAX_REQUEST_SIZE = 1024 * 1024
MAX_DEPTH = 32
_BYTES_OF_VALUE = 24
"""Bytes of a request for each value that its documents may hold; an entry has about 26 values."""
S = TypeVar("S")


class NoQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The query of a route without parameters; any parameter is an error."""


class Body(Struct, frozen=True):
    """The request body of a route: the schema is made from its model, the gate itself validates.

    The first accepted type of ``media`` is the one described; tests send each example.
    ``argument`` of the client's method takes the whole body; empty, or with ``members``: each
    member is an argument.
    """

    model: Any
    media: tuple[str, ...] = (JSON,)
    examples: Mapping[str, Any] = {}
    argument: str = ""
    members: bool = False


class Returns(Struct, frozen=True):
    """The successful answer of a route; ``paged``: the body is a page of ``model``."""

    model: Any
    description: str
    status: int = 200
    paged: bool = False
    media: tuple[str, ...] = (JSON,)
    etag: bool = False


class RouteOf(Struct, Generic[Q], frozen=True):
    """A route of ``/api/v1``, or a hook.

    Attributes:
        path: below ``prefix``, ``/revisions/{number:int}``, ``/decisions/{id:big}``.
        scope: None: anybody may. ``part`` is enough for a part of what the route does; the handler
            checks the rest.
        reason: where a change takes its reason from besides the header; None: not a change.
        matches: a change that honours ``If-Match``.
        errors: statuses of problems, besides those of every route.
        refusal: type of the body of errors, where that is not a problem.
        signed: a signature, or a token as a password, does instead of a bearer token.
        repeatable: a change that may be sent twice.
        command: that asks it, ``nodes racks``: the group ``nodes`` derives it.
        columns: members of the answer that command and page show.
        nav: item of the navigation, below which a page of the same path is derived.
        what: replaces ``{what}`` in the docstring of a handler that several resources share.
    """

    handler: Callable[[Call[Q]], Reply]
    method: Method
    path: str
    scope: Scope | None
    tag: str
    returns: Returns
    query: type[Q] = NoQuery  # type: ignore[assignment]
    name: str = ""
    what: str = ""
    body: Body | None = None
    reason: Literal["body", "query"] | None = None
    matches: bool = False
    errors: tuple[int, ...] = ()
    prefix: str = API_PREFIX
    refusal: Any = None
    refusal_media: str = JSON
    signed: bool = False
    part: Scope | None = None
    targets: TargetLimit = "refused"
    repeatable: bool = False
    slow: bool = False
    command: str = ""
    columns: tuple[str, ...] = ()
    nav: str = ""

    def __post_init__(self) -> None:
        if not self.name:
            force_setattr(self, "name", self.handler.__name__)

    @property
    def summary(self) -> str:
        """Return the first line of the handler's docstring."""
        return self._docstring.partition("\n")[0].strip().rstrip(".")

    @property
    def description(self) -> str:
        """Return the other lines of the handler's docstring."""
        return " ".join(self._docstring.partition("\n")[2].split())

    @property
    def _docstring(self) -> str:
        return (self.handler.__doc__ or "").replace("{what}", self.what).strip()

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """Return the scopes of which the caller needs one; empty: none is needed."""
        return tuple(scope for scope in (self.scope, self.part) if scope)

    @property
    def changes(self) -> bool:
        """Return whether the route changes what is stored, besides the log of decisions."""
        if self.method == "GET":  # whoever asks whether a wave may start, starts it
            return self.scope == "upgrade"
        return self.scope not in (None, *OPEN_SCOPES)

    @property
    def flask_rule(self) -> str:
        """Return the path as Flask routes it."""
        return _PARAMETER.sub(
            lambda m: f"<int(max={LARGEST[m[2]]}):{m[1]}>" if m[2] else f"<{m[1]}>", self.path
        )

    @property
    def template(self) -> str:
        """Return the path as OpenAPI writes it."""
        return _PARAMETER.sub(lambda m: f"{{{m[1]}}}", self.path)

    @property
    def parameters(self) -> list[tuple[str, int | None]]:
        """Return the names in the path, numbers with their largest value."""
        return [(m[1], LARGEST.get(m[2] or "")) for m in _PARAMETER.finditer(self.path)]


def declared(make: Callable[Concatenate[H, P], R]) -> Callable[P, Callable[[H], R]]:
    """Return a decorator that makes a handler a route or page; it takes their other fields."""

    def declare(*args: P.args, **fields: P.kwargs) -> Callable[[H], R]:
        return lambda handler: make(handler, *args, **fields)

    return declare


Route = RouteOf[Any]
route = declared(RouteOf)


class RequestSettings(Struct, frozen=True, kw_only=True):
    """Limits of each request: bytes of its body, and how deep a JSON body may be nested."""

    max_request_size: int = MAX_REQUEST_SIZE
    max_depth: int = MAX_DEPTH

    @property
    def max_values(self) -> int:
        """Return how many values the documents of a request may hold."""
        return self.max_request_size // _BYTES_OF_VALUE


class Services(Protocol):
    """The services of an application, each found by its class."""

    def find(self, kind: type[S]) -> S:
        """Return the one service of a class."""


class Call(Struct, Generic[Q]):
    """One request, its query validated and its sender known.

    ``parsed``: the body as JSON, once it was read.
    """

    services: Services
    settings: RequestSettings
    route: Route
    principal: Principal
    args: dict[str, Any]
    query: Q
    parsed: dict[str, Any] | None = None

    def use(self, kind: type[S]) -> S:
        """Return the one service of a class."""
        return self.services.find(kind)

    def raw(self) -> bytes:
        """Return the unparsed body; check its content type."""
        assert self.route.body is not None  # noqa: S101 - a mistake in the route's declaration
        return bodies.read_body(self.route.body.media, self.settings.max_request_size)

    def text(self) -> str:
        """Return the body as text."""
        return bodies.to_text(self.raw())

    def document(self) -> dict[str, Any]:
        """Return the body as a JSON object, without the change's ``reason``."""
        if self.parsed is None:
            self.parsed = bodies.to_object(self.raw(), self.settings.max_depth)
        if self.route.reason == "body":
            return {key: value for key, value in self.parsed.items() if key != "reason"}
        return self.parsed

    def filters(self) -> dict[str, Any]:
        """Return the filters of a list, with the sender's limit to targets."""
        asked: dict[str, Any] = self.query.filters()  # type: ignore[attr-defined]
        return {**asked, "within": self.principal.targets}

    def by(self) -> Authorship:
        """Return the author and reason of a change."""
        other: Any = None
        if self.route.reason == "body":
            self.document()
            other = (self.parsed or {}).get("reason")
        elif self.route.reason == "query":
            other = getattr(self.query, "reason", None)
        reason = read_reason(request.headers.get(REASON), other)
        force = getattr(self.query, "force", False)
        return Authorship(self.principal.name, reason, self.principal, force)


_Declare = Callable[[Callable[[Call[Any]], Reply]], Route]


class Routes(Struct, frozen=True):
    """Declares the routes of one resource, with what they share: ``scope`` is that of changes.

    A list and a thing that is shown have entity tags; to read them takes the scope ``read``.
    """

    tag: str
    targets: TargetLimit = "refused"
    scope: Scope | None = None

    def pages(self, path: str, model: Any, description: str, **fields: Any) -> _Declare:
        """Declare a list, which is read a page at a time."""
        return self.get(path, Returns(model, description, paged=True, etag=True), **fields)

    def shows(self, path: str, model: Any, description: str, **fields: Any) -> _Declare:
        """Declare the route of one thing, which may not exist."""
        returns = Returns(model, description, etag=True)
        return self.get(path, returns, **{"errors": (404,), **fields})

    def get(self, path: str, returns: Returns, **fields: Any) -> _Declare:
        """Declare a route that reads."""
        return self._declare("GET", path, returns, {"scope": "read", **fields})

    def post(self, path: str, returns: Returns, **fields: Any) -> _Declare:
        """Declare a route that does something."""
        return self._declare("POST", path, returns, fields)

    def put(self, path: str, returns: Returns, **fields: Any) -> _Declare:
        """Declare a route that stores a whole thing."""
        return self._declare("PUT", path, returns, fields)

    def delete(self, path: str, returns: Returns, **fields: Any) -> _Declare:
        """Declare a route that deletes."""
        return self._declare("DELETE", path, returns, fields)

    def _declare(
        self, method: Method, path: str, returns: Returns, fields: dict[str, Any]
    ) -> _Declare:
        shared: dict[str, Any] = {"tag": self.tag, "targets": self.targets}
        shared |= {"scope": self.scope} if self.scope else {}
        return route(method, path, returns=returns, **{**shared, **fields})
