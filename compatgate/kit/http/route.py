"""Declare a route once: routing, checks, the client and the OpenAPI description derive from it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, Generic, Literal, ParamSpec, TypeVar

from msgspec import Struct
from msgspec.structs import force_setattr

from compatgate.kit.http.call import Call
from compatgate.kit.http.links import API_PREFIX
from compatgate.kit.http.replies import Reply
from compatgate.kit.principal import ScopeName

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


class NoQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The query of a route without parameters; any parameter is an error."""


class Body(Struct, frozen=True):
    """The request body of a route.

    Attributes:
        model: type that the schema is made from; the gate itself validates.
        media: content types accepted; the first is the one described.
        examples: name to body; tests send each.
        argument: of the client's method, takes the whole body; empty: each member is an argument.
        members: the members are arguments besides.
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
        scope: what the caller must be allowed to do; None: anybody may.
        part: a scope that is enough for a part of what the route does; the handler checks the rest.
        targets: what a caller that is limited to targets meets.
        reason: where a change takes its reason from besides the header: a member of the body or a
            query parameter; None: not a change.
        matches: a change that honours ``If-Match``.
        errors: statuses of problems that this route may answer, besides those of every route.
        refusal: type of the body of errors, where that is not a problem; ``refusal_media`` its
            content type.
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
