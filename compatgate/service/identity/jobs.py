"""Trust the job tokens of CI systems: verify them with the issuer's keys, and apply the rules."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable

from compatgate.errors import Unauthorized
from compatgate.service.identity.issuers import Issuer
from compatgate.service.identity.rules import label, rule_of
from compatgate.service.identity.settings import JobIssuer
from compatgate.service.identity.verify import issuer_of, verify
from compatgate.service.tokens.principal import Principal

JOB_PREFIX = "job_"
_CACHE_SIZE = 4096
_LONGEST_S = 86400


class Jobs:
    """The issuers of job tokens, and the tokens that were verified.

    Args:
        trusted: issuers with their rules.
    """

    def __init__(self, trusted: Iterable[tuple[JobIssuer, Issuer]]) -> None:
        self._trusted = {settings.issuer: (settings, issuer) for settings, issuer in trusted}
        self._lock = threading.Lock()
        self._verified: OrderedDict[bytes, tuple[float, Principal]] = OrderedDict()

    def verify(self, token: str) -> Principal:
        """Return the job that a token is for. Reads keys over the network if need be.

        Raises:
            Unauthorized: the token is not valid, or of an issuer that is not trusted.
            Forbidden: no rule matches its claims.
            Unavailable: the issuer's keys cannot be read.
        """
        if known := self.at_hand(token):
            return known
        named = issuer_of(token)
        found = self._trusted.get(named)
        if found is None:
            what = f"this gate does not trust the issuer {named[:200]!r} for jobs"
            raise Unauthorized(
                what, field="iss", hint="configure trusted issuers with serve --oidc"
            )
        settings, issuer = found
        claims = verify(token, issuer, audience=settings.audience)
        rule = rule_of(claims, settings)
        targets = None if rule.targets is None else tuple(rule.targets)
        digest = _digest(token)
        principal = Principal(
            label(rule.name, claims["sub"]),
            frozenset(rule.scopes),
            JOB_PREFIX + digest.hex()[:16],
            targets,
            "job",
            f"{settings.issuer} {rule.name}",
        )
        left = min(claims["exp"] - int(time.time()), _LONGEST_S)
        self._keep(digest, time.monotonic() + left, principal)
        return principal

    def at_hand(self, token: str) -> Principal | None:
        """Return the job of a token that was verified before and has not expired."""
        known = self._verified.get(_digest(token))
        return known[1] if known and known[0] > time.monotonic() else None

    def _keep(self, digest: bytes, until: float, principal: Principal) -> None:
        with self._lock:
            while len(self._verified) >= _CACHE_SIZE:
                self._verified.popitem(last=False)
            self._verified[digest] = (until, principal)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
