"""Signed-in browsers: kept as digests of their cookies, looked up by digest."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import delete, insert, select
from sqlalchemy.orm import Session

from compatgate.store import audit
from compatgate.store.clock import now
from compatgate.store.models import BrowserSession, Token
from compatgate.store.rows import TokenRow
from compatgate.store.tokens import find


def open_session(session: Session, digest: str, token: TokenRow, expires_at: datetime) -> None:
    """Remember a browser, and forget those whose time is over."""
    at = now()
    session.execute(delete(BrowserSession).where(BrowserSession.expires_at <= at))
    row = {
        "digest": digest,
        "token_id": token.id,
        "created_at": at,
        "expires_at": expires_at,
    }
    session.execute(insert(BrowserSession), [row])
    detail = {"token": token.id, "expires_at": expires_at.isoformat()}
    audit.append(
        session, at=at, actor=token.name, action="session.open", subject=token.name, detail=detail
    )


def token_of(session: Session, digest: str) -> TokenRow | None:
    """The token of a browser whose time is not over; whether the token is good is for others."""
    query = (
        select(Token.id)
        .join(BrowserSession, BrowserSession.token_id == Token.id)
        .where(BrowserSession.digest == digest, BrowserSession.expires_at > now())
    )
    token_id = session.execute(query).scalar_one_or_none()
    return find(session, token_id) if token_id else None


def close_session(session: Session, digest: str) -> None:
    """Forget a browser."""
    session.execute(delete(BrowserSession).where(BrowserSession.digest == digest))
