"""Limit failed authentications of a peer, and optionally the requests of a caller.

Limits hold for each process. Health, metrics and Kubernetes admission are not limited by caller:
a cluster must not stop because its API server asks often.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from compatgate.errors import Forbidden, Unauthorized
from compatgate.kit.http.rate import Rate, RateLimiter, peer_key, refuse_for

if TYPE_CHECKING:
    from compatgate.service.tokens.principal import Principal

FAILED = Rate(30, 60.0)
"""Failed authentications of a peer; a forgotten script tries once a minute."""


class Holders(Protocol):
    """Those whom secrets belong to: tokens, or people and jobs that an issuer vouches for."""

    def verify(self, secret: str) -> Principal:
        """Return the holder of a secret.

        Raises:
            Unauthorized: it is not valid.
            Forbidden: its holder may do nothing here.
        """

    def was_valid(self, secret: str) -> bool:
        """Return whether this process has found the secret valid before."""


class RequestLimits:
    """The limits of one application.

    Args:
        failed: failed authentications of a peer; None: no limit.
        requests: requests of a caller; anonymous callers count by address; None: no limit.
    """

    def __init__(self, failed: Rate | None = None, requests: Rate | None = None) -> None:
        self._failed = RateLimiter(failed) if failed else None
        self._requests = RateLimiter(requests) if requests else None

    def verify(self, secret: str, holders: Holders, peer: str) -> Principal:
        """Return the holder of a secret, and count a failure.

        A peer that has failed too often is refused without a look at the database, unless its
        secret was valid before: somebody behind the same address must not lock others out.

        Raises:
            Unauthorized: as `Holders.verify`; so is Forbidden.
            TooManyRequests: the peer has failed too often.
        """
        if not holders.was_valid(secret):
            self.check_failures(peer)
        try:
            return holders.verify(secret)
        except (Unauthorized, Forbidden):
            self.count_failure(peer)
            raise

    def check_failures(self, peer: str) -> None:
        """Refuse a peer that has failed to authenticate too often.

        Raises:
            TooManyRequests: says when to try again.
        """
        if self._failed is not None and (wait := self._failed.wait(peer_key(peer))):
            hint = "check the token; a token that was valid before is still accepted"
            raise refuse_for(wait, "too many failed authentications from this address", hint)

    def count_failure(self, peer: str) -> None:
        """Count a failed authentication."""
        if self._failed is not None:
            self._failed.take(peer_key(peer))

    def take(self, caller: Principal, peer: str) -> None:
        """Count a request.

        Raises:
            TooManyRequests: the caller has sent too many; says when to try again.
        """
        if self._requests is None or caller.kind == "local":
            return
        key = f"peer:{peer_key(peer)}" if caller.is_anonymous else caller.identity
        if wait := self._requests.take(key):
            hint = "spread the requests, or ask the operator: serve --rate"
            raise refuse_for(wait, f"{caller.name} sends too many requests", hint)
