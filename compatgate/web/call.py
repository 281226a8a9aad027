"""What a handler is given, and what it gives back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from flask import request
from msgspec import Struct

from compatgate.gate.matrix import By
from compatgate.web import body as bodies
from compatgate.web.etags import remarked
from compatgate.web.reasons import HEADER as REASON
from compatgate.web.reasons import given_reason

if TYPE_CHECKING:
    from compatgate.catalog.library import Library
    from compatgate.gate.attest.service import Attestations
    from compatgate.gate.auth import Principal
    from compatgate.gate.service import Gate
    from compatgate.web.metrics import Metrics
    from compatgate.web.route import Route
    from compatgate.web.settings import Settings
    from compatgate.web.streams import Listeners

Q = TypeVar("Q", bound=Struct)


class Service(Struct, frozen=True):
    """What every request of one application shares."""

    gate: Gate
    settings: Settings
    metrics: Metrics
    nobody: Principal
    """Whoever comes without a token."""
    facts: Library
    """The fact files, overlays laid over them."""
    description: bytes
    """The OpenAPI document."""
    listeners: Listeners
    """Who follows a log."""
    attestations: Attestations
    """Signs verdicts."""


class Call(Struct, Generic[Q]):
    """One request, its query validated and its sender known.

    Attributes:
        args: values of the path.
        query: validated query parameters.
        parsed: the body as JSON, once it was read.
    """

    service: Service
    route: Route
    principal: Principal
    args: dict[str, Any]
    query: Q
    parsed: dict[str, Any] | None = None

    @property
    def gate(self) -> Gate:
        """The gate that answers."""
        return self.service.gate

    def raw(self) -> bytes:
        """The body as it was sent, its content type checked."""
        assert self.route.body is not None  # noqa: S101 - a mistake in the route's declaration
        return bodies.read(self.route.body.media, self.service.settings.max_request_size)

    def text(self) -> str:
        """The body as text."""
        return bodies.to_text(self.raw())

    def document(self) -> dict[str, Any]:
        """The body as a JSON object, without the change's ``reason``."""
        if self.parsed is None:
            self.parsed = bodies.to_object(self.raw(), self.service.settings.max_depth)
        if self.route.reason == "body":
            return {key: value for key, value in self.parsed.items() if key != "reason"}
        return self.parsed

    def by(self) -> By:
        """Who changes, and why.

        Raises:
            BadInput: no reason was given.
        """
        other: Any = None
        if self.route.reason == "body":
            self.document()
            other = (self.parsed or {}).get("reason")
        elif self.route.reason == "query":
            other = getattr(self.query, "reason", None)
        return By(self.principal.name, given_reason(request.headers.get(REASON), other))


class Reply(Struct, frozen=True):
    """An answer.

    Attributes:
        body: bytes as they are, an iterator of pieces to stream, or anything that JSON can carry.
        etag: strong entity tag; a GET without one gets the digest of its body.
        secret: must be stored nowhere.
    """

    body: Any
    status: int = 200
    headers: dict[str, str] = {}
    etag: str | None = None
    media: str = "application/json"
    secret: bool = False


def stored(
    row: Any,
    *,
    status: int = 200,
    headers: dict[str, str] | None = None,
    remarks: dict[str, Any] | None = None,
) -> Reply:
    """A stored document, with the entity tag of its revision, and of what is shown besides."""
    body = {**row.to_json(), **(remarks or {})}
    etag = remarked(row.etag, remarks) if remarks else row.etag
    return Reply(body, status=status, headers=headers or {}, etag=etag)
