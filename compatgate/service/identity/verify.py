"""Verify JSON Web Tokens of an issuer: algorithm, key, signature and claims.

Only asymmetric algorithms count, and the key must be the issuer's: a token that is signed with a
public key as a shared secret, or not at all, is refused. Authlib checks the claims.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgspec
from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import (
    ExpiredTokenError,
    InvalidClaimError,
    JoseError,
    MissingClaimError,
)
from joserfc.jws import JWSRegistry, extract_compact

from compatgate.errors import Unauthorized

if TYPE_CHECKING:
    from compatgate.service.identity.issuers import Issuer

ALGORITHMS = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512",
    "ES256", "ES384", "ES512", "EdDSA", "Ed25519",
)  # fmt: skip
LEEWAY_S = 60
"""Tolerated difference between the clocks of the issuer and of this gate."""
_KINDS = ("jwt", "id_token", None)
Claims = dict[str, Any]


def issuer_of(token: str) -> str:
    """Return the issuer that an unverified token names.

    Raises:
        Unauthorized: the token is malformed.
    """
    try:
        claims = msgspec.json.decode(extract_compact(token.encode()).payload, type=Claims)
    except (JoseError, msgspec.MsgspecError, ValueError, RecursionError):
        raise Unauthorized("the job token is malformed", field="Authorization") from None
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
        token: as it was received.
        issuer: whose keys verify it.
        audience: one of the ``aud`` of the token.
        client_id: the client that the token was issued to; None: any.
        nonce: that the token must repeat.
        access_token: that came with the token; its hash is compared where the token has one.

    Raises:
        Unauthorized: says what does not match.
        Unavailable: the issuer's keys cannot be read.
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
        raise _refused(_claim(error), "is missing") from None
    except InvalidClaimError as error:
        claim = _claim(error)
        given = str(decoded.claims.get(claim))[:200]
        expected = f"; expected: {audience}" if claim == "aud" else ""
        raise _refused(claim, f"does not match: {given}{expected}") from None
    except (JoseError, ValueError, TypeError, RecursionError):
        raise Unauthorized("the signature of the token is not valid") from None
    subject = claims["sub"]
    if not isinstance(subject, str) or not subject.isprintable() or not 0 < len(subject) <= 512:
        raise _refused("sub", "names nobody: it must have 1 to 512 readable characters")
    return dict(claims)


def _header(token: str) -> dict[str, Any]:
    try:
        return dict(extract_compact(token.encode()).headers())
    except (JoseError, ValueError, RecursionError):
        raise Unauthorized("the token is malformed") from None


def _claim(error: MissingClaimError | InvalidClaimError) -> str:
    return str(error.claim)


def _refused(claim: str, why: str) -> Unauthorized:
    return Unauthorized(f"the token is refused: {claim} {why}", field=claim)
