"""What an operator can set about the web side."""

from __future__ import annotations

from msgspec import Struct

MAX_REQUEST_SIZE = 1024 * 1024
MAX_DEPTH = 32


class Settings(Struct, frozen=True):
    """Settings of the web application.

    Attributes:
        anonymous: scopes of whoever comes without a token.
        max_request_size: bytes of a request's body.
        max_depth: how deep a JSON body may be nested.
        max_listeners: who may follow a log at once, each on a thread of the server.
        overlays: the operator's fact files, as the gate was opened with.
    """

    anonymous: frozenset[str] = frozenset()
    max_request_size: int = MAX_REQUEST_SIZE
    max_depth: int = MAX_DEPTH
    max_listeners: int = 8
    overlays: tuple[str, ...] | None = None
