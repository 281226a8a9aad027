"""Signing in with a browser: a token is shown once, a cookie stands for it from then on."""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from datetime import timedelta

from msgspec import Struct

from compatgate.gate.auth import Principal, Tokens, digest_of, principal_of
from compatgate.store import clock, sessions
from compatgate.store.database import Database
from compatgate.store.rows import TokenRow

LIFETIME = timedelta(hours=12)
"""A working day; a token that ends sooner ends its sessions with it."""
_CACHE_SECONDS = 1.0
_CACHE_SIZE = 4096
_FORMS = b"compatgate forms"
_TOKEN_BYTES = 32


class SignedIn(Struct, frozen=True):
    """A browser at the only moment at which the value of its cookie is known."""

    cookie: str
    principal: Principal
    seconds: int


class BrowserSessions:
    """Opens and closes browsers' sessions. A revoked token ends them after a second."""

    def __init__(self, database: Database, tokens: Tokens) -> None:
        self._database = database
        self._tokens = tokens
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, TokenRow]] = {}

    def sign_in(self, secret: str) -> SignedIn:
        """Open a session.

        Args:
            secret: of a token, as it was printed.

        Raises:
            Unauthorized: it opens nothing.
        """
        principal = self._tokens.verify(secret)
        token = self._tokens.find(principal.token_id or "")
        now = clock.now()
        end = min(now + LIFETIME, token.expires_at or now + LIFETIME)
        cookie = secrets.token_urlsafe(32)
        with self._database.writing() as session:
            sessions.open_session(session, digest_of(cookie), token, end)
        return SignedIn(cookie, principal, int((end - now).total_seconds()))

    def principal(self, cookie: str) -> Principal | None:
        """Whose session it is; None: nobody's, or no longer.

        Raises:
            Unauthorized: the token was revoked or has expired since.
        """
        digest = digest_of(cookie)
        present = time.monotonic()
        cached = self._known.get(digest)
        if cached and cached[0] > present:
            return principal_of(cached[1])
        with self._database.reading() as session:
            token = sessions.token_of(session, digest)
        if token is None:
            return None
        with self._lock:
            if len(self._known) >= _CACHE_SIZE:
                self._known.clear()
            self._known[digest] = (present + _CACHE_SECONDS, token)
        return principal_of(token)

    def sign_out(self, cookie: str) -> None:
        """Close a session; one that is not known is closed already."""
        digest = digest_of(cookie)
        with self._database.writing() as session:
            sessions.close_session(session, digest)
        with self._lock:
            self._known.pop(digest, None)


def form_token(cookie: str) -> str:
    """Return what a form of this session carries: other sites cannot know it (against CSRF).

    It is masked anew each time: from the length of compressed pages nobody learns it (BREACH).
    """
    mask = secrets.token_bytes(_TOKEN_BYTES)
    return (mask + _masked(mask, _token(cookie))).hex()


def is_form_token(cookie: str, given: str) -> bool:
    """Whether a form is one of this session."""
    try:
        raw = bytes.fromhex(given)
    except ValueError:
        return False
    mask, hidden = raw[:_TOKEN_BYTES], raw[_TOKEN_BYTES:]
    if len(hidden) != _TOKEN_BYTES:
        return False
    return hmac.compare_digest(_masked(mask, hidden), _token(cookie))


def _token(cookie: str) -> bytes:
    return hmac.digest(cookie.encode(), _FORMS, "sha256")


def _masked(mask: bytes, token: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(mask, token, strict=True))
