"""Read what an issuer publishes, its discovery document and its keys, and keep it.

Both are read again after an hour. A token with an unknown key has the keys read again, at most
once a minute. While an issuer does not answer, what is known stays valid for a day. Only the
thread that reads waits for the network.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import httpx2
import msgspec
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, Key, KeySet, OKPKey, RSAKey, import_key

from compatgate.errors import Unavailable, quote_error
from compatgate.service.access.identity.settings import url_problem

TIMEOUT_S = 5.0
FRESH_S = 3600.0
STALE_S = 86400.0
UNKNOWN_KEY_PAUSE_S = 60.0
FAILURE_PAUSE_S = 10.0
_MAX_BYTES = 1024 * 1024
_SMALLEST_RSA_BITS = 2048
_DISCOVERY = "/.well-known/openid-configuration"
T = TypeVar("T")


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
