"""Limit the requests of peers and callers, each process by itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from flask import request

from compatgate.errors import Forbidden, Unauthorized
from compatgate.kit.http.rate import Rate, RateLimiter, peer_key, refuse_for

if TYPE_CHECKING:
    from compatgate.kit.principal import Principal

FAILED = Rate(30, 60.0)
"""Failed authentications of a peer; a forgotten script tries once a minute."""


def peer_address() -> str:
    """Return the address that the request came from: the client's, behind a trusted proxy."""
    return request.environ.get("REMOTE_ADDR") or ""


class Holders(Protocol):
    """Those whom secrets belong to: tokens, or people and jobs that an issuer vouches for."""

    def verify(self, secret: str) -> Principal:
        """Return the holder of a secret."""

    def was_valid(self, secret: str) -> bool:
        """Return whether this process has found the secret valid before."""


class RequestLimits:
    """The limits of one application.

    Failed authentications count by peer, requests by caller, questions by an anonymous caller's
    address; None: no limit.
    """

    def __init__(
        self,
        failed: Rate | None = None,
        requests: Rate | None = None,
        questions: Rate | None = None,
    ) -> None:
        self._failed = RateLimiter(failed) if failed else None
        self._requests = RateLimiter(requests) if requests else None
        self._questions = RateLimiter(questions) if questions else None

    def verify(self, secret: str, holders: Holders, peer: str) -> Principal:
        """Return the holder of a secret, and count a failure.

        A peer that has failed too often is refused without a look at the database, unless its
        secret was valid before: somebody behind the same address must not lock others out.
        """
        with self.counted_failures(peer, checks=not holders.was_valid(secret)):
            return holders.verify(secret)

    @contextmanager
    def counted_failures(self, peer: str | None = None, *, checks: bool = True) -> Iterator[None]:
        """Count an authentication that fails, and refuse a peer that has failed too often."""
        key = peer_key(peer_address() if peer is None else peer)
        if checks and self._failed is not None and (wait := self._failed.wait(key)):
            hint = "check the token; a token that was valid before is still accepted"
            raise refuse_for(wait, "too many failed authentications from this address", hint)
        try:
            yield
        except (Unauthorized, Forbidden):
            if self._failed is not None:
                self._failed.take(key)
            raise

    def take(self, caller: Principal, peer: str) -> None:
        """Count a request."""
        if self._requests is None or caller.kind == "local":
            return
        key = f"token:{caller.name}" if caller.kind == "token" else caller.identity
        key = f"peer:{peer_key(peer)}" if caller.is_anonymous else key
        if wait := self._requests.take(key):
            hint = "spread the requests, or ask the operator: serve --rate"
            raise refuse_for(wait, f"{caller.name} sends too many requests", hint)

    def take_question(self, caller: Principal, peer: str) -> None:
        """Count a question whose verdict is stored."""
        if self._questions is None or not caller.is_anonymous:
            return
        if wait := self._questions.take(peer_key(peer)):
            hint = "ask with a token, or ask the operator: serve --anonymous-rate"
            raise refuse_for(wait, "too many questions without a token from this address", hint)
