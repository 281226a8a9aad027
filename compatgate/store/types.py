"""Column types that mean the same on SQLite and on PostgreSQL."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import BigInteger, DateTime, Dialect, Integer, String
from sqlalchemy.types import TypeDecorator, TypeEngine

from compatgate.store.clock import from_iso, iso

BigKey = BigInteger().with_variant(Integer(), "sqlite")
"""A key that the database numbers; SQLite does so only for plain integers."""


class UtcTime(TypeDecorator[datetime]):
    """An aware UTC time: ``timestamptz`` on PostgreSQL, sortable text on SQLite."""

    impl = DateTime
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """The column's type on a database."""
        if dialect.name == "sqlite":
            return dialect.type_descriptor(String(27))
        return dialect.type_descriptor(DateTime(timezone=True))

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        """What is sent; a naive time would be a guess."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a stored time must know its zone")
        return iso(value) if dialect.name == "sqlite" else value.astimezone(UTC)

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        """What was stored, in UTC."""
        if value is None:
            return None
        return from_iso(value) if isinstance(value, str) else value.astimezone(UTC)
