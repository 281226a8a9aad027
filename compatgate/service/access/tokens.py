"""Make, check, rotate and revoke tokens, and check their scopes."""

from __future__ import annotations

import hashlib
import re
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct
from sqlalchemy import func, select, update

from compatgate.errors import BadInput, Conflict, Unauthorized, Unavailable
from compatgate.kit import clock
from compatgate.kit.database.database import Database, in_reading
from compatgate.kit.database.tables import Page, page
from compatgate.kit.database.watch import Keeper
from compatgate.kit.principal import SCOPES, Principal, check_patterns
from compatgate.service.access import token_table as tokens
from compatgate.service.access.token_table import KnownToken, Token, TokenRow
from compatgate.service.audit import chain as audit

_PREFIX = "cg_"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,127}")
CACHE_SECONDS = 1.0
CACHE_SIZE = 4096
TOUCH_EVERY = timedelta(minutes=1)
LONGEST_OVERLAP = timedelta(days=30)
LASTING = timedelta(days=30)
"""An admin token that expires sooner does not stand in for the last one."""


def parse_scopes(text: str) -> frozenset[str]:
    """Read ``read,gate``."""
    return check_scopes(part.strip() for part in text.split(",") if part.strip())


def check_scopes(scopes: Iterable[str]) -> frozenset[str]:
    """Check that all scopes exist, and return them; at least one is needed."""
    found = frozenset(scopes)
    hint = f"of {', '.join(SCOPES)}"
    for scope in sorted(found - set(SCOPES)):
        raise BadInput(f"{scope!r} is not a scope", field="scopes", value=scope, hint=hint)
    if not found:
        raise BadInput("no scope is given", field="scopes", hint=hint)
    return found


class NewToken(Struct, frozen=True):
    """A new token with its secret, which is known only now."""

    secret: str
    token: TokenRow


class Tokens:
    """Create, verify and revoke tokens. A revoked token is refused after at most a second.

    Without a keeper, the thread of a request asks the database; with one, requests read memory
    alone, so that known tokens stay valid while the database is unavailable.
    """

    find = in_reading(tokens.find_token)

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._verified: dict[str, tuple[float, TokenRow]] = {}
        self._proven: OrderedDict[str, None] = OrderedDict()
        self._known: dict[str, KnownToken] = {}
        self._touched: dict[str, datetime] = {}
        self._toucher: ThreadPoolExecutor | None = None
        self.keeper: Keeper | None = None

    def know(self, known: Iterable[KnownToken]) -> None:
        """Replace the tokens in memory."""
        self._known = {one.digest: one for one in known}

    def _from_memory(self, digest: str) -> TokenRow | None:
        known = self._known.get(digest)
        return None if known is None or clock.is_past(known.until) else known.token

    def create(
        self,
        name: str,
        scopes: Iterable[str],
        *,
        by: str,
        expires_at: datetime | None = None,
        targets: Iterable[str] | None = None,
        person: str | None = None,
    ) -> NewToken:
        """Make a token; its name is unique, also among revoked tokens.

        ``person``: the person whose it is; tokens and the sign-in of a person approve once.

        ``targets``: patterns of the only targets that it reaches; None: every target. An admin
        token has no limit: it could create tokens without one.
        """
        if not _NAME.fullmatch(name):
            hint = "letters, digits and . _ - @; at most 128 characters"
            raise BadInput("is not a valid token name", field="name", value=name, hint=hint)
        checked = check_scopes(scopes)
        if clock.is_past(expires_at):
            raise BadInput("is in the past", field="expires", value=str(expires_at))
        if person is not None and (not person.strip() or not person.isprintable()):
            hint = "a name as the sign-in or another token has it"
            raise BadInput("is not a person's name", field="person", value=person, hint=hint)
        limit = None if targets is None else check_patterns(targets)
        if limit is not None and "admin" in checked:
            what = "the scope admin cannot be limited to targets: it creates other tokens"
            raise BadInput(what, field="targets", hint="omit the scope admin or the target limit")
        secret = _PREFIX + secrets.token_urlsafe(32)
        with self._database.writing() as session:
            if session.scalars(select(Token.id).where(Token.name == name)).first():
                hint = "choose another; names of revoked tokens stay taken"
                raise Conflict(f"the token {name!r} exists", field="name", value=name, hint=hint)
            token = Token(
                id=f"tk_{secrets.token_hex(8)}",
                name=name,
                digest=digest_of(secret),
                scopes=tuple(sorted(checked)),
                created_at=clock.now(),
                created_by=by,
                expires_at=expires_at,
                targets=limit,
                person=person.strip() if person else None,
            )
            session.add(token)
            session.flush()
            detail: dict[str, Any] = {"id": token.id, "scopes": list(token.scopes)}
            detail |= {"expires_at": clock.iso(expires_at)} if expires_at else {}
            detail |= {"targets": list(limit)} if limit is not None else {}
            detail |= {"person": token.person} if token.person else {}
            detail["sha256"] = tokens.digest_row(token)
            audit.append(session, by, "token.create", name, detail, token.created_at)
            row = tokens.to_row(token)
        self._forget()
        return NewToken(secret, row)

    def rotate(
        self,
        id_or_name: str,
        *,
        by: str,
        overlap: timedelta = timedelta(),
        expires_at: datetime | None = None,
    ) -> NewToken:
        """Give a token a new secret; name, id, scopes and targets stay.

        The present secret stays valid for the overlap; without a new end the token keeps its own.
        """
        if not timedelta() <= overlap <= LONGEST_OVERLAP:
            hint = f"at most {LONGEST_OVERLAP.days}d"
            raise BadInput("is too long", field="overlap", value=str(overlap), hint=hint)
        if clock.is_past(expires_at):
            raise BadInput("is in the past", field="expires", value=str(expires_at))
        secret = _PREFIX + secrets.token_urlsafe(32)
        with self._database.writing() as session:
            stored = tokens.find_stored(session, id_or_name)
            token = tokens.to_row(stored)
            problem, hint = "", "create another token"
            if token.revoked_at is not None:
                problem = f"the token {token.name} was revoked"
            elif expires_at is None and clock.is_past(token.expires_at):
                problem = f"the token {token.name} has expired"
                hint = "set a new end with expires"
            if problem:
                raise Conflict(problem, field="token", value=token.name, hint=hint)
            if expires_at is not None:
                _keep_an_admin(token, tokens.active_tokens(session), "expire")
            at = clock.now()
            ends = at + overlap if overlap else None
            stored.previous_digest = stored.digest if ends else None
            stored.previous_expires_at = ends
            stored.digest, stored.rotated_at = digest_of(secret), at
            stored.expires_at = expires_at or token.expires_at
            session.flush()
            detail = {
                "id": stored.id,
                "overlap_ends": clock.iso(ends) if ends else None,
                "expires_at": clock.iso(stored.expires_at) if stored.expires_at else None,
                "sha256": tokens.digest_row(stored),
            }
            audit.append(session, by, "token.rotate", stored.name, detail, at)
            row = tokens.to_row(stored)
        self._forget()
        return NewToken(secret, row)

    def ensure_admin(self) -> NewToken | None:
        """Create the first token at the first start; None: tokens exist. Print its secret once."""
        with self._database.reading() as session:
            if session.execute(select(func.count()).select_from(Token)).scalar_one():
                return None
        try:
            return self.create("admin", ["admin"], by="first start")
        except Conflict:  # another process was first
            return None

    def verify(self, secret: str) -> Principal:
        """Return the holder of a secret."""
        digest = digest_of(secret)
        token = self._lookup(digest) if self.keeper is None else self._recall(digest, self.keeper)
        if token is None:
            hint = "compatgate token create"
            raise Unauthorized("the token is unknown", hint=hint, reason="unknown")
        return to_principal(token)

    def at_hand(self, secret: str) -> Principal | None:
        """Return the holder of a recently verified secret; None: `verify` must look it up."""
        if self.keeper is not None:
            token = self._from_memory(digest_of(secret)) if self.keeper.is_recent() else None
            if token is None:
                return None
            self._touch_later(token)
            return to_principal(token)
        token = self._cached(digest_of(secret))
        return to_principal(token) if token else None

    def _lookup(self, digest: str) -> TokenRow | None:
        if token := self._cached(digest):
            return token
        end = time.monotonic() + CACHE_SECONDS
        with self._database.reading() as session:
            stored = session.scalars(select(Token).where(tokens.has_secret(digest))).first()
            token = tokens.to_row(stored) if stored else None
        if token is None:
            return None
        self._touch(token)
        with self._lock:
            if len(self._verified) >= CACHE_SIZE:
                self._verified.clear()
            self._verified[digest] = (end, token)
            self._proven.pop(digest, None)
            if token.active:  # secrets of ended tokens are forgotten
                self._proven[digest] = None
            if len(self._proven) > CACHE_SIZE:
                self._proven.popitem(last=False)
        return token

    def _cached(self, digest: str) -> TokenRow | None:
        cached = self._verified.get(digest)
        return cached[1] if cached and cached[0] > time.monotonic() else None

    def _recall(self, digest: str, keeper: Keeper) -> TokenRow | None:
        """Return a token from memory; look again for one that another process may have made."""
        keeper.check()
        token, is_known = self._from_memory(digest), True
        if token is None:
            is_known = keeper.check_now()
            token = self._from_memory(digest)
        if token is not None:
            self._touch_later(token)
        elif keeper.is_away() or not is_known:
            raise Unavailable(
                "the token cannot be checked now: the gate has not seen it before, and the"
                " database does not answer",
                hint="try again when the database is back",
            )
        return token

    def _touch_later(self, token: TokenRow) -> None:
        """Store the time of a token's use in another thread: the database may be slow."""
        now = clock.now()
        last = self._touched.get(token.id) or token.last_used_at
        if last is not None and now - last <= TOUCH_EVERY:
            return
        with self._lock:
            self._touched[token.id] = now
            if self._toucher is None:
                self._toucher = ThreadPoolExecutor(1, "tokens")
        with suppress(RuntimeError):  # this process ends
            self._toucher.submit(self._touch, token)

    def close(self) -> None:
        """Forget what is still to be stored of the use of tokens."""
        if self._toucher is not None:
            self._toucher.shutdown(wait=False, cancel_futures=True)

    def was_valid(self, secret: str) -> bool:
        """Return whether the secret opened a token in this process before; never wait."""
        digest = digest_of(secret)
        known = self._from_memory(digest)
        return digest in self._proven or (known is not None and known.active)

    def _forget(self) -> None:
        """Look at the database before the next answer: a token changed."""
        with self._lock:
            self._verified.clear()
        if self.keeper is not None:
            self.keeper.follow_change()

    def _touch(self, token: TokenRow) -> None:
        now = clock.now()
        last = token.last_used_at
        if token.active and (last is None or now - last > TOUCH_EVERY):
            with suppress(Unavailable), self._database.writing() as session:
                session.execute(update(Token).where(Token.id == token.id).values(last_used_at=now))

    def list(
        self, *, active: bool | None = None, cursor: str | None = None, limit: int = 100
    ) -> Page[TokenRow]:
        """Return tokens by name, a page at a time."""
        with self._database.reading() as session:
            query = select(Token.__table__)
            if active is not None:
                query = query.where(tokens.is_active() if active else ~tokens.is_active())
            return page(session, query, Token.name, tokens.to_row, cursor=cursor, limit=limit)

    def revoke(self, id_or_name: str, *, by: str, even_last_admin: bool = False) -> TokenRow:
        """Revoke a token once; the last one with the scope ``admin`` only if that is said."""
        with self._database.writing() as session:
            stored = tokens.find_stored(session, id_or_name)
            if not even_last_admin:
                _keep_an_admin(tokens.to_row(stored), tokens.active_tokens(session), "be revoked")
            if stored.revoked_at is None:
                at = stored.revoked_at = clock.now()
                audit.append(session, by, "token.revoke", stored.name, {"id": stored.id}, at)
            token = tokens.to_row(stored)
        self._forget()
        return token


def _keep_an_admin(token: TokenRow, active: Iterable[TokenRow], what: str) -> None:
    """Refuse to end the last admin token that lasts, so that nobody locks everybody out.

    Another one lasts if it does not expire within `LASTING`, or not before this one.
    """
    admins = {one.id: one for one in active if "admin" in one.scopes}
    if token.id not in admins:
        return
    others = [one for one in admins.values() if one.id != token.id]
    for other in others:
        if other.expires_at is None or other.expires_at - clock.now() > LASTING:
            return
        if token.expires_at is not None and other.expires_at >= token.expires_at:
            return
    ends = [f"{one.name} expires on {one.expires_at:%Y-%m-%d}" for one in others if one.expires_at]
    lasts = f" that lasts ({', '.join(ends[:3])})" if ends else ""
    hint = "create another admin token first"
    if what == "be revoked":
        hint += "; on the server's machine compatgate token revoke NAME --last-admin revokes it"
        hint += " anyway"
    problem = (
        f"the token {token.name} is the last one with the scope admin{lasts}: it cannot {what}"
    )
    raise Conflict(problem, field="token", value=token.name, hint=hint)


def to_principal(token: TokenRow) -> Principal:
    """Return the holder of a token."""
    name = token.name
    if token.revoked_at is not None:
        raise Unauthorized(f"the token {name} was revoked", reason="revoked", token=name)
    if clock.is_past(token.expires_at):
        raise Unauthorized(f"the token {name} has expired", reason="expired", token=name)
    scopes, person = frozenset(token.scopes), token.person or ""
    return Principal(name, scopes, token.id, token.targets, subject=person)


def digest_of(secret: str) -> str:
    """Return the digest that is stored in place of a secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
