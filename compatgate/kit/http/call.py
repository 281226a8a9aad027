"""Describe one call: the request of a handler, and the services that it may use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from flask import request
from msgspec import Struct

from compatgate.kit.http import requests as bodies
from compatgate.kit.http.requests import REASON_HEADER as REASON
from compatgate.kit.http.requests import read_reason
from compatgate.kit.principal import Authorship

if TYPE_CHECKING:
    from compatgate.kit.http.route import Route
    from compatgate.kit.principal import Principal

MAX_REQUEST_SIZE = 1024 * 1024
MAX_DEPTH = 32
_BYTES_OF_VALUE = 24
"""Bytes of a request for each value that its documents may hold; an entry has about 26 values."""
Q = TypeVar("Q", bound=Struct)
S = TypeVar("S")


class RequestSettings(Struct, frozen=True, kw_only=True):
    """Limits of each request.

    Attributes:
        max_request_size: bytes of a request's body.
        max_depth: how deep a JSON body may be nested.
    """

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
