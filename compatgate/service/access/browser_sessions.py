"""Sign browsers in: a browser sends a token once, a cookie replaces it from then on."""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from contextlib import suppress
from datetime import datetime, timedelta

from msgspec import Struct
from sqlalchemy import delete, or_, select, update
from sqlalchemy.orm import Session

from compatgate.errors import Unavailable
from compatgate.kit import clock
from compatgate.kit.database.database import Database
from compatgate.kit.principal import Principal
from compatgate.service.access import token_table as tokens
from compatgate.service.access import tokens as service
from compatgate.service.access.token_table import BrowserSession, Token, TokenRow
from compatgate.service.access.tokens import Tokens, digest_of, to_principal
from compatgate.service.audit import chain as audit

_OUTAGE_SECONDS = 900.0
"""Time that a session outlives its last check while the database is unavailable."""


class SessionLimits(Struct, frozen=True):
    """The ends of browser sessions; they end earlier if their token or its secret does."""

    lifetime: timedelta = timedelta(hours=12)
    idle: timedelta = timedelta(hours=2)


_FORMS = b"compatgate forms"
_TOKEN_BYTES = 32


class NewBrowserSession(Struct, frozen=True):
    """A new browser session with its cookie, which is known only now."""

    cookie: str
    principal: Principal
    seconds: int


class BrowserSessions:
    """Open and close browser sessions.

    A revoked token, or a secret that was rotated out, ends them after at most a second.
    """

    def __init__(self, database: Database, tokens: Tokens) -> None:
        self._database = database
        self._tokens = tokens
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, TokenRow]] = {}
        self.limits = SessionLimits()

    def sign_in(self, secret: str) -> NewBrowserSession:
        """Open a session with the secret of a token."""
        principal = self._tokens.verify(secret)
        token = self._tokens.find(principal.token_id or "")
        now = clock.now()
        end = now + self.limits.lifetime
        end = min(end, token.expires_at or end)
        cookie = secrets.token_urlsafe(32)
        with self._database.writing() as session:
            expired = BrowserSession.expires_at <= now
            session.execute(delete(BrowserSession).where(expired))
            opened = BrowserSession(
                digest=digest_of(cookie),
                token_id=token.id,
                created_at=now,
                expires_at=end,
                seen_at=now,
                secret=digest_of(secret),
            )
            session.add(opened)
            detail = {"token": token.id, "expires_at": end.isoformat()}
            audit.append(session, token.name, "session.open", token.name, detail, now)
        return NewBrowserSession(cookie, principal, int((end - now).total_seconds()))

    def principal(self, cookie: str) -> Principal | None:
        """Return the holder of a session; None: unknown, expired or idle for too long."""
        digest = digest_of(cookie)
        present = time.monotonic()
        cached = self._known.get(digest)
        if cached and cached[0] > present:
            return to_principal(cached[1])
        try:
            with self._database.reading() as session:
                found = find_session(session, digest)
        except Unavailable:  # a session of a moment ago outlives a short outage
            if cached is None or present - cached[0] > _OUTAGE_SECONDS:
                raise
            return to_principal(cached[1])
        if found is None:
            return None
        (token, seen_at), at = found, clock.now()
        if at - seen_at > self.limits.idle:
            with suppress(Unavailable):
                self._close(digest, "idle")
            return None
        if at - seen_at > min(service.TOUCH_EVERY, self.limits.idle / 10):
            with suppress(Unavailable), self._database.writing() as session:
                query = update(BrowserSession).where(BrowserSession.digest == digest)
                session.execute(query.values(seen_at=at))
        with self._lock:
            if len(self._known) >= service.CACHE_SIZE:
                self._known.clear()
            self._known[digest] = (present + service.CACHE_SECONDS, token)
        return to_principal(token)

    def sign_out(self, cookie: str) -> None:
        """Close a session; an unknown session counts as closed."""
        self._close(digest_of(cookie), "signed out")

    def _close(self, digest: str, why: str) -> None:
        with self._database.writing() as session:
            of_token = BrowserSession.token_id == Token.id
            query = select(Token.id, Token.name).join(BrowserSession, of_token)
            row = session.execute(query.where(BrowserSession.digest == digest)).first()
            if row is not None:
                session.execute(delete(BrowserSession).where(BrowserSession.digest == digest))
                detail = {"token": row.id, "why": why}
                audit.append(session, row.name, "session.close", row.name, detail)
        with self._lock:
            self._known.pop(digest, None)


def find_session(session: Session, digest: str) -> tuple[TokenRow, datetime] | None:
    """Return the token of a browser session, and the time of its last request, to a minute.

    None: it has reached its absolute end, or its secret no longer opens the token. Callers check
    that the token is valid.
    """
    query = (
        select(BrowserSession, Token)
        .join(Token, BrowserSession.token_id == Token.id)
        .where(BrowserSession.digest == digest, BrowserSession.expires_at > clock.now())
        .where(or_(BrowserSession.secret.is_(None), tokens.has_secret(BrowserSession.secret)))
    )
    found = session.execute(query).first()
    return (tokens.to_row(found[1]), found[0].seen_at or found[0].created_at) if found else None


def form_token(cookie: str) -> str:
    """Return the form token of a session, which other sites cannot know (against CSRF).

    A new mask each time hides it from attacks on the length of compressed pages (BREACH).
    """
    mask = secrets.token_bytes(_TOKEN_BYTES)
    return (mask + _mask(mask, cookie)).hex()


def is_form_token(cookie: str, given: str) -> bool:
    """Return whether a form token belongs to this session."""
    try:
        raw = bytes.fromhex(given)
    except ValueError:
        return False
    mask, hidden = raw[:_TOKEN_BYTES], raw[_TOKEN_BYTES:]
    if len(hidden) != _TOKEN_BYTES:
        return False
    return hmac.compare_digest(hidden, _mask(mask, cookie))


def _mask(mask: bytes, cookie: str) -> bytes:
    token = hmac.digest(cookie.encode(), _FORMS, "sha256")
    return bytes(a ^ b for a, b in zip(mask, token, strict=True))
