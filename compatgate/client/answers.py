"""Answers out of what was received: types where all is well, errors otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from compatgate.client.known import known_part
from compatgate.client.problems import refused
from compatgate.client.request import Request
from compatgate.errors import TooLarge, Unavailable
from compatgate.not_json import NOT_JSON

A = TypeVar("A")
LARGEST = 256 * 1024 * 1024
"""Bytes of an answer; a matrix of 100,000 entries has some 40 MB."""
NOT_MODIFIED = 304


class Received(Struct, frozen=True):
    """An answer as it came."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Answer(Struct, Generic[A], frozen=True):
    """An answer with what HTTP says beside it.

    Attributes:
        value: None where what the client has is still right (``not_modified``).
        etag: for ``if_none_match`` and ``if_match``; None: it has none.
        request_id: under which the gate's log knows the request.
    """

    value: A
    etag: str | None
    request_id: str | None
    not_modified: bool = False


class Gathered:
    """The parts of a body, as long as they are not too many.

    Args:
        base: of the gate.
    """

    def __init__(self, base: str) -> None:
        self._base = base
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, part: bytes) -> None:
        """Another part.

        Raises:
            TooLarge: no gate says so much.
        """
        self._size += len(part)
        if self._size > LARGEST:
            raise TooLarge(f"the answer is larger than {LARGEST} bytes", field=self._base)
        self._parts.append(part)

    def whole(self) -> bytes:
        """The body."""
        return b"".join(self._parts)


def read(request: Request[A], received: Received, base: str, *, token: bool) -> Answer[A]:
    """What an answer says.

    Args:
        request: that was answered.
        received: the answer.
        base: of the gate, for errors.
        token: one was sent.

    Raises:
        CompatgateError: the gate refuses, with its explanation.
        Unavailable: it has no answer, or this is none.
    """
    headers = received.headers
    etag, number = headers.get("ETag"), headers.get("X-Request-Id")
    if received.status == NOT_MODIFIED:
        nothing: Any = None
        return Answer(nothing, etag, number, not_modified=True)
    if not 200 <= received.status < 300 and not request.refusal:
        raise refused(received.status, headers, received.body, base, token=token)
    try:
        value = _decode(request.answer, received.body)
    except NOT_JSON as error:
        if received.status >= 400:
            raise refused(received.status, headers, received.body, base, token=token) from None
        raise _not_understood(error, base) from None
    return Answer(value, etag, number)


def _not_understood(error: Exception, base: str) -> Unavailable:
    """The error for an answer that is none."""
    if isinstance(error, msgspec.ValidationError):
        problem = f"the gate answered what this client does not understand: {error}"
        return Unavailable(problem, field=base, hint="is the gate newer? update compatgate")
    problem = "the gate answered with something else than JSON; is it a gate?"
    return Unavailable(problem, field=base)


def _decode(kind: Any, body: bytes) -> Any:
    """A value of a type; members that only a newer gate knows are left out."""
    if kind in (bytes, str):
        return body if kind is bytes else body.decode()
    try:
        return _decoder(kind).decode(body)
    except msgspec.ValidationError:
        return msgspec.convert(known_part(kind, msgspec.json.decode(body)), kind, str_keys=True)


@lru_cache(maxsize=256)
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)
