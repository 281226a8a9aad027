"""Verify JSON Web Tokens of an issuer, and trust the job tokens of CI systems by rules.

Only asymmetric algorithms count, and the key must be the issuer's: a token that is signed with a
public key as a shared secret, or not at all, is refused. Authlib checks the claims.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

import msgspec
from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import ExpiredTokenError, InvalidClaimError, JoseError, MissingClaimError
from joserfc.jws import JWSRegistry, extract_compact

from compatgate.errors import Unauthorized
from compatgate.kit.principal import Principal
from compatgate.service.access.identity.issuers import Issuer
from compatgate.service.access.identity.rules import label, rule_of
from compatgate.service.access.identity.settings import JobIssuer

ALGORITHMS = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512",
    "ES256", "ES384", "ES512", "EdDSA", "Ed25519",
)  # fmt: skip
LEEWAY_S = 60
"""Tolerated difference between the clocks of the issuer and of this gate."""
_KINDS = ("jwt", "id_token", None)
Claims = dict[str, Any]


def issuer_of(token: str) -> str:
    """Return the issuer that an unverified token names."""
    try:
        claims = msgspec.json.decode(extract_compact(token.encode()).payload, type=Claims)
    except (JoseError, msgspec.MsgspecError, ValueError, RecursionError):
        what = "the job token is malformed"
        raise Unauthorized(what, field="Authorization", reason="malformed") from None
    issuer = claims.get("iss")
    return issuer if isinstance(issuer, str) else ""


def verify(
    token: str,
    issuer: Issuer,
    *,
    audience: str,
    client_id: str | None = None,
    nonce: str | None = None,
    access_token: str | None = None,
) -> Claims:
    """Return the claims of a token.

    Args:
        audience: one of the ``aud`` of the token.
        client_id: the client that the token was issued to; None: any.
        access_token: that came with the token; its hash is compared where the token has one.
    """
    header = _header(token)
    if header.get("alg") not in ALGORITHMS:
        raise _refused("alg", f"is {header.get('alg')!r}; accepted: {', '.join(ALGORITHMS)}")
    kind = header.get("typ")
    if (kind.lower() if isinstance(kind, str) else kind) not in _KINDS:
        raise _refused("typ", f"is {kind!r}, not that of an ID token")
    kid = header.get("kid")
    key = issuer.key(kid if isinstance(kid, str) else None)
    if key is None:
        raise _refused("kid", f"{str(kid)[:80]!r} is no key of {issuer.url}")
    try:
        decoded = jwt.decode(token, key, registry=JWSRegistry(algorithms=ALGORITHMS))
        options: Any = {
            "iss": {"essential": True, "value": issuer.url},
            "aud": {"essential": True, "value": audience},
        }
        params = {"nonce": nonce, "client_id": client_id, "access_token": access_token}
        claims = CodeIDToken(decoded.claims, decoded.header, options, params)
        claims.validate(now=int(time.time()), leeway=LEEWAY_S)
    except ExpiredTokenError:
        raise _refused("exp", "has passed: the token has expired") from None
    except MissingClaimError as error:
        raise _refused(str(error.claim), "is missing") from None
    except InvalidClaimError as error:
        claim = str(error.claim)
        given = str(decoded.claims.get(claim))[:200]
        expected = f"; expected: {audience}" if claim == "aud" else ""
        raise _refused(claim, f"does not match: {given}{expected}") from None
    except (JoseError, ValueError, TypeError, RecursionError):
        what = "the signature of the token is not valid"
        raise Unauthorized(what, reason="signature") from None
    subject = claims["sub"]
    if not isinstance(subject, str) or not subject.isprintable() or not 0 < len(subject) <= 512:
        raise _refused("sub", "names nobody: it must have 1 to 512 readable characters")
    return dict(claims)


def _header(token: str) -> dict[str, Any]:
    try:
        return dict(extract_compact(token.encode()).headers())
    except (JoseError, ValueError, RecursionError):
        raise Unauthorized("the token is malformed", reason="malformed") from None


def _refused(claim: str, why: str) -> Unauthorized:
    return Unauthorized(f"the token is refused: {claim} {why}", field=claim)


JOB_PREFIX = "job_"
_CACHE_SIZE = 4096
_LONGEST_S = 86400


class Jobs:
    """The issuers of job tokens, and the tokens that were verified."""

    def __init__(self, trusted: Iterable[tuple[JobIssuer, Issuer]]) -> None:
        self._trusted = {settings.issuer: (settings, issuer) for settings, issuer in trusted}
        self._lock = threading.Lock()
        self._verified: OrderedDict[bytes, tuple[float, Principal]] = OrderedDict()

    def verify(self, token: str) -> Principal:
        """Return the job that a token is for. Reads keys over the network if need be."""
        if known := self.at_hand(token):
            return known
        named = issuer_of(token)
        found = self._trusted.get(named)
        if found is None:
            what = f"this gate does not trust the issuer {named[:200]!r} for jobs"
            hint = "configure trusted issuers with serve --oidc"
            raise Unauthorized(what, field="iss", hint=hint)
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
        lasts_s = min(claims["exp"] - int(time.time()), _LONGEST_S)
        with self._lock:
            while len(self._verified) >= _CACHE_SIZE:
                self._verified.popitem(last=False)
            self._verified[digest] = (time.monotonic() + lasts_s, principal)
        return principal

    def at_hand(self, token: str) -> Principal | None:
        """Return the job of a token that was verified before and has not expired."""
        known = self._verified.get(_digest(token))
        return known[1] if known and known[0] > time.monotonic() else None


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
