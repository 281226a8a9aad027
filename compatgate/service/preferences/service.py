"""Find and keep the preferences of whoever asks for a page.

Somebody who signed in has them in the database: a person by the issuer's subject, a token by its
name. Everybody else has them in a cookie of the browser, and takes them along when signing in.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from sqlalchemy import Text, delete, insert, select, update
from sqlalchemy.orm import Mapped, mapped_column

from compatgate.errors import BadInput, CompatgateError
from compatgate.kit.clock import now
from compatgate.kit.database.database import Database
from compatgate.kit.database.tables import Base, UtcTime
from compatgate.kit.ui.preferences import (
    PREFERENCES_COOKIE,
    Preferences,
    cookie_preferences,
    pack_cookie,
    read_preferences,
    use_preferences,
    write_preferences,
)

if TYPE_CHECKING:
    from compatgate.service.tokens.principal import Principal


MAX_SIZE = 32_000
"""Characters of stored preferences; all views of one person are a part of them."""


class StoredPreferences(Base):
    """The preferences of a person or a token."""

    __tablename__ = "preferences"

    identity: Mapped[str] = mapped_column(
        Text, primary_key=True, comment="person:issuer and subject, or token:name"
    )
    body: Mapped[str] = mapped_column(Text, comment="JSON, without defaults")
    changed_at: Mapped[datetime] = mapped_column(UtcTime)


class PreferenceStore:
    """The preferences of those who sign in.

    They are no change of the gate, so the audit log does not note them.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, identity: str) -> Preferences | None:
        """Return the preferences of an identity; None: it has none, or the database is away."""
        query = select(StoredPreferences.body).where(StoredPreferences.identity == identity)
        try:
            with self._database.reading() as session:
                body = session.scalar(query)
        except CompatgateError:  # a page says by itself that the database is away
            return None
        return None if body is None else read_preferences(body)

    def save(self, identity: str, chosen: Preferences) -> None:
        """Store the preferences of an identity.

        Raises:
            BadInput: they are too large.
        """
        body = write_preferences(chosen)
        if len(body) > MAX_SIZE:
            hint = "delete a view on the page Preferences"
            raise BadInput("are too large", field="preferences", value=len(body), hint=hint)
        mine = StoredPreferences.identity == identity
        with self._database.writing() as session:
            known = session.scalar(select(StoredPreferences.identity).where(mine))
            if known is None:
                row = {"identity": identity, "body": body, "changed_at": now()}
                session.execute(insert(StoredPreferences).values(row))
            else:
                change = update(StoredPreferences).where(mine)
                session.execute(change.values(body=body, changed_at=now()))

    def delete(self, identity: str) -> None:
        """Forget the preferences of an identity."""
        with self._database.writing() as session:
            mine = StoredPreferences.identity == identity
            session.execute(delete(StoredPreferences).where(mine))


def adopt_preferences(store: PreferenceStore, principal: Principal) -> None:
    """Let the pages of this request follow the preferences of a caller.

    Args:
        store: of the gate.
        principal: the caller.
    """
    if not principal.is_anonymous:
        use_preferences(lambda: store.find(principal.identity) or cookie_preferences())


def keep_preferences(
    store: PreferenceStore, principal: Principal, chosen: Preferences
) -> dict[str, str]:
    """Keep the preferences of a caller.

    Args:
        store: of the gate.
        principal: the caller.
        chosen: all of the caller's preferences.

    Returns:
        Cookies to set, by name.

    Raises:
        BadInput: they are too large.
    """
    if principal.is_anonymous:
        return {PREFERENCES_COOKIE: pack_cookie(chosen)}
    store.save(principal.identity, chosen)
    return {}
