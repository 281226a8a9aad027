"""Verify the tokens of issuers with the keys that they publish, and trust job tokens by rules.

Discovery document and keys are read again after an hour. A token with an unknown key has the keys
read again, at most once a minute. While an issuer does not answer, what is known stays valid for a
day. Only the thread that reads waits for the network.

Only asymmetric algorithms count, and the key must be the issuer's: a token that is signed with a
public key as a shared secret, or not at all, is refused. Authlib checks the claims.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

import httpx2
import msgspec
from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import ExpiredTokenError, InvalidClaimError, JoseError, MissingClaimError
from joserfc.jwk import ECKey, Key, KeySet, OKPKey, RSAKey, import_key
from joserfc.jws import JWSRegistry, extract_compact

from compatgate.errors import Unauthorized, Unavailable, quote_error
from compatgate.kit.principal import Principal
from compatgate.service.access.settings import JobIssuer, label, rule_of, url_problem

TIMEOUT_S = 5.0
FRESH_S = 3600.0
STALE_S = 86400.0
UNKNOWN_KEY_PAUSE_S = 60.0
FAILURE_PAUSE_S = 10.0
_MAX_BYTES = 1024 * 1024
_SMALLEST_RSA_BITS = 2048
_DISCOVERY = "/.well-known/openid-configuration"
T = TypeVar("T")
ALGORITHMS = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512",
    "ES256", "ES384", "ES512", "EdDSA", "Ed25519",
)  # fmt: skip
LEEWAY_S = 60
"""Tolerated difference between the clocks of the issuer and of this gate."""
_KINDS = ("jwt", "id_token", None)
Claims = dict[str, Any]
JOB_PREFIX = "job_"
_CACHE_SIZE = 4096
_LONGEST_S = 86400


class _Published(Generic[T]):
    """Something that an issuer publishes; reading it asks the issuer."""

    def __init__(self, read: Callable[[], T]) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._value: T | None = None
        self._read_at = self._tried_at = float("-inf")
        self._failure: Unavailable | None = None

    def get(self) -> T:
        """Return it; read it when it is old."""
        if self._value is not None and time.monotonic() - self._read_at < FRESH_S:
            return self._value
        self._refresh(FAILURE_PAUSE_S)
        return self._known()

    def get_newer(self) -> T:
        """Return it as the issuer publishes it now, or what was read in the last minute."""
        self._refresh(UNKNOWN_KEY_PAUSE_S)
        return self._known()

    def _known(self) -> T:
        if self._value is not None and time.monotonic() - self._read_at < STALE_S:
            return self._value
        raise self._failure or Unavailable("the issuer has not answered yet")

    def _refresh(self, pause_s: float) -> None:
        """Read it, unless that was tried just now; with a known value only one thread waits."""
        waits = self._value is None
        if not self._lock.acquire(timeout=TIMEOUT_S if waits else 0):
            return
        try:
            if time.monotonic() - self._tried_at < pause_s:
                return
            self._tried_at = time.monotonic()
            try:
                self._value, self._failure = self._read(), None
                self._read_at = time.monotonic()
            except Unavailable as error:
                self._failure = error
        finally:
            self._lock.release()


class Issuer:
    """An issuer of tokens: its metadata and its keys; the URL is as its tokens spell it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._http = httpx2.Client(timeout=TIMEOUT_S, follow_redirects=False)
        self._metadata = _Published(self._read_metadata)
        self._keys = _Published(self._read_keys)

    def metadata(self) -> Mapping[str, Any]:
        """Return the discovery document, its issuer and endpoints checked."""
        return self._metadata.get()

    def key(self, kid: str | None) -> Key | None:
        """Return the public key that a token names; None: the issuer has none of this name.

        Without a name the issuer's only key counts.
        """
        return _find(self._keys.get(), kid) or _find(self._keys.get_newer(), kid)

    def endpoint(self, name: str) -> str:
        """Return the URL of an endpoint."""
        url = self.metadata().get(name)
        if not isinstance(url, str):
            raise Unavailable(f"the issuer has no {name}", field=self.url)
        return url

    def get_json(self, url: str, **headers: str) -> dict[str, Any]:
        """Read a JSON object."""
        try:
            with self._http.stream("GET", url, headers=headers) as response:
                body = b""
                for part in response.iter_bytes():
                    body += part
                    if len(body) > _MAX_BYTES:
                        raise self._away(f"answers with more than {_MAX_BYTES} bytes", url)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise self._away(f"does not answer: {quote_error(error)}", url) from None
        if response.status_code != 200:
            raise self._away(f"answers with status {response.status_code}", url)
        try:
            return msgspec.json.decode(body, type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise self._away("does not return a JSON object", url) from None

    def close(self) -> None:
        """Close connections."""
        self._http.close()

    def _away(self, what: str, url: str) -> Unavailable:
        return Unavailable(f"the issuer {self.url} {what}", field=url, hint="try again soon")

    def _read_metadata(self) -> Mapping[str, Any]:
        url = self.url.rstrip("/") + _DISCOVERY
        found = self.get_json(url)
        if found.get("issuer") != self.url:
            raise self._away(f"returns another issuer name: {found.get('issuer')!r}", url)
        for name, value in found.items():
            if name == "jwks_uri" or name.endswith("_endpoint"):
                problem = url_problem(value.partition("?")[0] if isinstance(value, str) else "")
                if problem:
                    raise self._away(f"publishes a {name} that {problem}", url)
        return found

    def _read_keys(self) -> KeySet:
        url = self.endpoint("jwks_uri")
        listed = self.get_json(url).get("keys")
        keys = [_import(one) for one in listed] if isinstance(listed, list) else []
        usable = [key for key in keys if key is not None]
        if not usable:
            raise self._away("publishes no usable key", url)
        return KeySet(usable)


def _import(listed: Any) -> Key | None:
    """Return a public key for signatures; None: of another kind, too short, or malformed."""
    if not isinstance(listed, dict) or listed.get("use", "sig") != "sig":
        return None
    public = {name: value for name, value in listed.items() if name != "d"}
    try:
        key = import_key(public)
        if isinstance(key, RSAKey) and key.public_key.key_size < _SMALLEST_RSA_BITS:
            return None
    except (JoseError, ValueError, TypeError, KeyError):
        return None
    return key if isinstance(key, RSAKey | ECKey | OKPKey) else None


def _find(keys: KeySet, kid: str | None) -> Key | None:
    if kid is None:
        return keys.keys[0] if len(keys.keys) == 1 else None
    return next((key for key in keys.keys if key.kid == kid), None)


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
    try:
        header = extract_compact(token.encode()).headers()
    except (JoseError, ValueError, RecursionError):
        raise Unauthorized("the token is malformed", reason="malformed") from None
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


def _refused(claim: str, why: str) -> Unauthorized:
    return Unauthorized(f"the token is refused: {claim} {why}", field=claim)


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
