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
from typing import Protocol

from msgspec import Struct

from compatgate.errors import BadInput, Conflict, Unauthorized, Unavailable
from compatgate.kit import clock
from compatgate.kit.database.database import Database
from compatgate.kit.database.tables import Page
from compatgate.service.tokens import repository as tokens
from compatgate.service.tokens.principal import Principal, check_patterns
from compatgate.service.tokens.repository import KnownToken, TokenRow
from compatgate.service.tokens.schemas import SCOPES

_PREFIX = "cg_"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,127}")
CACHE_SECONDS = 1.0
CACHE_SIZE = 4096
TOUCH_EVERY = timedelta(minutes=1)
LONGEST_OVERLAP = timedelta(days=30)
LASTING = timedelta(days=30)
"""An admin token that expires sooner does not stand in for the last one."""


def parse_scopes(text: str) -> frozenset[str]:
    """Read ``read,gate``.

    Raises:
        BadInput: an unknown scope, or no scope.
    """
    return check_scopes(part.strip() for part in text.split(",") if part.strip())


def check_scopes(scopes: Iterable[str]) -> frozenset[str]:
    """Check that all scopes exist, and return them; at least one is needed.

    Raises:
        BadInput: otherwise.
    """
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


class Keeper(Protocol):
    """Looks at the database in a thread of its own, and brings the tokens to `Tokens.know`."""

    def check(self) -> None:
        """Look at the database if a look is due; wait a moment at most."""

    def check_now(self) -> bool:
        """Look at the database and its tokens, and return whether that was done in a moment."""

    def follow_change(self) -> None:
        """Wait until a change that this process has made is in memory."""

    def is_recent(self) -> bool:
        """Return whether memory is recent enough to answer without a look at the database."""

    def is_away(self) -> bool:
        """Return whether the database is unavailable."""


class Tokens:
    """Create, verify and revoke tokens. A revoked token is refused after at most a second.

    Without a keeper, the thread of a request asks the database; with one, requests read memory
    alone, so that known tokens stay valid while the database is unavailable.
    """

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
    ) -> NewToken:
        """Make a token.

        Args:
            name: unique, also among revoked tokens; logs show it.
            scopes: at least one.
            by: author.
            expires_at: None: never.
            targets: patterns of the only targets that it reaches; None: every target.

        Raises:
            BadInput: a malformed name or pattern, an unknown scope, an end that has passed, or an
                admin token with a limit, which could create tokens without one.
            Conflict: another token has the name.
        """
        if not _NAME.fullmatch(name):
            hint = "letters, digits and . _ - @; at most 128 characters"
            raise BadInput("is not a valid token name", field="name", value=name, hint=hint)
        checked = check_scopes(scopes)
        if clock.is_past(expires_at):
            raise BadInput("is in the past", field="expires", value=str(expires_at))
        limit = None if targets is None else check_patterns(targets)
        if limit is not None and "admin" in checked:
            what = "the scope admin cannot be limited to targets: it creates other tokens"
            raise BadInput(what, field="targets", hint="omit the scope admin or the target limit")
        secret = _PREFIX + secrets.token_urlsafe(32)
        with self._database.writing() as session:
            row = tokens.create_token(
                session,
                token_id=f"tk_{secrets.token_hex(8)}",
                name=name,
                digest=digest_of(secret),
                scopes=checked,
                by=by,
                expires_at=expires_at,
                targets=limit,
            )
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

        Args:
            id_or_name: of the token.
            by: author.
            overlap: time for which the present secret stays valid, too; at most 30 days.
            expires_at: new end of the token; None: the end that it has.

        Raises:
            NotFound: there is none of that id or name.
            BadInput: the overlap is too long, or the end has passed.
            Conflict: it was revoked, or has expired and gets no new end, or it is the last admin
                token and would get an end.
        """
        if not timedelta() <= overlap <= LONGEST_OVERLAP:
            hint = f"at most {LONGEST_OVERLAP.days}d"
            raise BadInput("is too long", field="overlap", value=str(overlap), hint=hint)
        if clock.is_past(expires_at):
            raise BadInput("is in the past", field="expires", value=str(expires_at))
        secret = _PREFIX + secrets.token_urlsafe(32)
        with self._database.writing() as session:
            token = tokens.find_token(session, id_or_name)
            _check_rotation(token, expires_at)
            if expires_at is not None:
                _keep_an_admin(token, tokens.active_tokens(session), "expire")
            row = tokens.rotate_token(
                session,
                token,
                digest=digest_of(secret),
                by=by,
                overlap_ends=clock.now() + overlap if overlap else None,
                expires_at=expires_at or token.expires_at,
            )
        self._forget()
        return NewToken(secret, row)

    def ensure_admin(self) -> NewToken | None:
        """Create the first token at the first start; None: tokens exist. Print its secret once."""
        with self._database.reading() as session:
            if tokens.count_tokens(session):
                return None
        try:
            return self.create("admin", ["admin"], by="first start")
        except Conflict:  # another process was first
            return None

    def verify(self, secret: str) -> Principal:
        """Return the holder of a secret.

        Raises:
            Unauthorized: it is not known, was revoked or has expired.
            Unavailable: it is not known, and the database that may know it is unavailable.
        """
        digest = digest_of(secret)
        token = self._lookup(digest) if self.keeper is None else self._recall(digest, self.keeper)
        if token is None:
            raise Unauthorized(
                "the token is unknown", hint="compatgate token create", reason="unknown"
            )
        return to_principal(token)

    def at_hand(self, secret: str) -> Principal | None:
        """Return the holder of a recently verified secret; None: `verify` must look it up.

        Raises:
            Unauthorized: it has expired.
        """
        if self.keeper is not None:
            token = self._from_memory(digest_of(secret)) if self.keeper.is_recent() else None
            if token is None:
                return None
            self._touch_later(token)
            return to_principal(token)
        cached = self._verified.get(digest_of(secret))
        if cached is None or cached[0] <= time.monotonic():
            return None
        return to_principal(cached[1])

    def find(self, id_or_name: str) -> TokenRow:
        """Return a token.

        Raises:
            NotFound: there is none of that id or name.
        """
        with self._database.reading() as session:
            return tokens.find_token(session, id_or_name)

    def _lookup(self, digest: str) -> TokenRow | None:
        present = time.monotonic()
        if (cached := self._verified.get(digest)) and cached[0] > present:
            return cached[1]
        with self._database.reading() as session:
            token = tokens.find_by_digest(session, digest)
        if token is None:
            return None
        self._touch(token)
        with self._lock:
            if len(self._verified) >= CACHE_SIZE:
                self._verified.clear()
            self._verified[digest] = (present + CACHE_SECONDS, token)
            self._remember(digest, token)
        return token

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

    def _remember(self, digest: str, token: TokenRow) -> None:
        """Remember the secret of a valid token, and forget that of an ended one."""
        if not token.is_active:
            self._proven.pop(digest, None)
            return
        self._proven[digest] = None
        self._proven.move_to_end(digest)
        if len(self._proven) > CACHE_SIZE:
            self._proven.popitem(last=False)

    def was_valid(self, secret: str) -> bool:
        """Return whether the secret opened a token in this process before; never wait."""
        digest = digest_of(secret)
        known = self._from_memory(digest)
        return digest in self._proven or (known is not None and known.is_active)

    def _forget(self) -> None:
        """Look at the database before the next answer: a token changed."""
        with self._lock:
            self._verified.clear()
        if self.keeper is not None:
            self.keeper.follow_change()

    def _touch(self, token: TokenRow) -> None:
        now = clock.now()
        if token.is_active and (
            token.last_used_at is None or now - token.last_used_at > TOUCH_EVERY
        ):
            with suppress(Unavailable), self._database.writing() as session:
                tokens.touch_token(session, token.id, now)

    def list(
        self, *, active: bool | None = None, cursor: str | None = None, limit: int = 100
    ) -> Page[TokenRow]:
        """Return tokens by name, a page at a time."""
        with self._database.reading() as session:
            return tokens.list_tokens(session, active=active, cursor=cursor, limit=limit)

    def revoke(self, id_or_name: str, *, by: str, even_last_admin: bool = False) -> TokenRow:
        """End a token.

        Args:
            id_or_name: of the token.
            by: author.
            even_last_admin: revoke the last token with the scope ``admin`` too.

        Raises:
            NotFound: there is none of that id or name.
            Conflict: it is the last token with the scope ``admin``.
        """
        with self._database.writing() as session:
            token = tokens.find_token(session, id_or_name)
            if not even_last_admin:
                _keep_an_admin(token, tokens.active_tokens(session), "be revoked")
            token = tokens.revoke_token(session, id_or_name, by=by)
        self._forget()
        return token


def _check_rotation(token: TokenRow, expires_at: datetime | None) -> None:
    hint = "create another token"
    if token.revoked_at is not None:
        what = f"the token {token.name} was revoked"
        raise Conflict(what, field="token", value=token.name, hint=hint)
    if expires_at is None and clock.is_past(token.expires_at):
        what = f"the token {token.name} has expired"
        raise Conflict(what, field="token", value=token.name, hint="set a new end with expires")


def _keep_an_admin(token: TokenRow, active: Iterable[TokenRow], what: str) -> None:
    """Refuse to end the last admin token that lasts, so that nobody locks everybody out.

    Another one lasts if it does not expire within `LASTING`, or not before this one.

    Raises:
        Conflict: no other admin token lasts.
    """
    admins = {one.id: one for one in active if "admin" in one.scopes}
    if token.id not in admins:
        return
    others = [one for one in admins.values() if one.id != token.id]
    if any(_lasts(one, token) for one in others):
        return
    ends = [f"{one.name} expires on {one.expires_at:%Y-%m-%d}" for one in others if one.expires_at]
    lasts = f" that lasts ({', '.join(ends[:3])})" if ends else ""
    hint = "create another admin token first"
    if what == "be revoked":
        hint += (
            "; on the server's machine compatgate token revoke NAME --last-admin revokes it anyway"
        )
    raise Conflict(
        f"the token {token.name} is the last one with the scope admin{lasts}: it cannot {what}",
        field="token",
        value=token.name,
        hint=hint,
    )


def _lasts(other: TokenRow, token: TokenRow) -> bool:
    if other.expires_at is None or other.expires_at - clock.now() > LASTING:
        return True
    return token.expires_at is not None and other.expires_at >= token.expires_at


def to_principal(token: TokenRow) -> Principal:
    """Return the holder of a token.

    Raises:
        Unauthorized: it was revoked or has expired.
    """
    if token.revoked_at is not None:
        raise Unauthorized(
            f"the token {token.name} was revoked", reason="revoked", token=token.name
        )
    if clock.is_past(token.expires_at):
        raise Unauthorized(
            f"the token {token.name} has expired", reason="expired", token=token.name
        )
    return Principal(token.name, frozenset(token.scopes), token.id, token.targets)


def digest_of(secret: str) -> str:
    """Return the digest that is stored in place of a secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
