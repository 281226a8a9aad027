"""Declare tables, migrate them, and read lists a page at a time.

Column types mean the same on SQLite and PostgreSQL. A cursor holds the key after which the next
page begins: rows added meanwhile do not shift it, and a late page costs as little as the first.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

import msgspec
from msgspec import Meta, Struct
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    DateTime,
    Dialect,
    Integer,
    MetaData,
    String,
    Text,
    false,
    inspect,
    or_,
    text,
    tuple_,
)
from sqlalchemy.orm import DeclarativeBase, InstrumentedAttribute, Session
from sqlalchemy.types import TypeDecorator, TypeEngine

from compatgate.errors import BadInput, Unavailable
from compatgate.kit.clock import from_iso, iso
from compatgate.kit.database.database import Database
from compatgate.kit.principal import TargetPatterns
from compatgate.resources import migrations_dir

if TYPE_CHECKING:
    from alembic.config import Config

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}
"""Names of constraints, so that migrations can name them on every database."""
BigKey = BigInteger().with_variant(Integer(), "sqlite")
"""A key that the database numbers; SQLite does so only for plain integers."""
_encode_json = msgspec.json.Encoder(order="deterministic").encode
MAX_LIMIT = 1000
DEFAULT_LIMIT = 100
T = TypeVar("T")
Column = InstrumentedAttribute[Any]
EXPECTED_VERSION = "0025"
"""The newest migration."""
_KEY_TYPES: dict[type, Any] = {
    int: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)],
    str: Annotated[str, Meta(pattern=r"\A[^\x00]*\Z")],
}
"""Values that a database can compare a key with."""


class Base(DeclarativeBase):
    """Declarative base of all tables."""

    metadata = MetaData(naming_convention=NAMING)


class UtcTime(TypeDecorator[datetime]):
    """An aware UTC time: ``timestamptz`` on PostgreSQL, sortable text on SQLite."""

    impl = DateTime
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Return the column's type on a database."""
        if dialect.name == "sqlite":
            return dialect.type_descriptor(String(27))
        return dialect.type_descriptor(DateTime(timezone=True))

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        """Convert an aware time to what the database stores; refuse a naive time."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a stored time needs a time zone")
        return iso(value) if dialect.name == "sqlite" else value.astimezone(UTC)

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        """Return the stored time in UTC."""
        if value is None:
            return None
        return from_iso(value) if isinstance(value, str) else value.astimezone(UTC)


class JsonText(TypeDecorator[Any]):
    """A value as JSON text, its keys in order."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        """Return the text that the database stores."""
        return None if value is None else _encode_json(value).decode()

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        """Return the stored value."""
        return None if value is None else msgspec.json.decode(value)


class Words(TypeDecorator[tuple[str, ...]]):
    """Words in one text, separated by spaces."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        """Return the text that the database stores; a text is taken as it is."""
        return value if value is None or isinstance(value, str) else " ".join(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> tuple[str, ...] | None:
        """Return the words."""
        return None if value is None else tuple(value.split())


def to_plain(row: Struct) -> dict[str, Any]:
    """Return a row as plain data, times as text."""
    body = msgspec.structs.asdict(row)
    return {k: iso(v) if isinstance(v, datetime) else v for k, v in body.items()}


def narrow(
    query: Any, equal: Mapping[Any, Any], *, at: Any = None, since: Any = None, until: Any = None
) -> Any:
    """Return a query with the filters that are stated: values of columns, and a period."""
    wanted = [column == value for column, value in equal.items() if value not in (None, "")]
    wanted += [at >= since] if since else []
    wanted += [at <= until] if until else []
    return query.where(*wanted)


class Page(Struct, Generic[T], frozen=True):
    """A page of a list; ``next``: cursor of the next page; None: this is the last."""

    items: tuple[T, ...]
    next: str | None = None


def page(
    session: Session,
    query: Any,
    key: Column | tuple[Column, ...],
    make: Callable[[Any], T] | None = None,
    *,
    cursor: str | None,
    limit: int,
    descending: bool = False,
) -> Page[T]:
    """Return one page of a query.

    The query is filtered, without order; its rows carry the columns of ``key`` by name. ``make``
    turns a row into an item; None: the query selects a mapped class.
    """
    check_limit(limit)
    keys = key if isinstance(key, tuple) else (key,)
    if cursor is not None:
        last = decode_cursor(cursor, keys)
        here = tuple_(*keys)
        query = query.where(here < last if descending else here > last)
    query = query.order_by(*(k.desc() if descending else k.asc() for k in keys)).limit(limit + 1)
    found = session.execute(query) if make else session.scalars(query)
    rows: Sequence[Any] = found.all()
    more = len(rows) > limit
    rows = rows[:limit]
    following = encode_cursor([getattr(rows[-1], k.key) for k in keys]) if more else None
    return Page(tuple(map(make, rows) if make else rows), following)


def pages(fetch: Callable[..., Page[T]], **filters: Any) -> Iterator[Page[T]]:
    """Yield all pages of a list; read each page only when the caller asks for it."""
    cursor = None
    while True:
        found = fetch(**filters, cursor=cursor, limit=MAX_LIMIT)
        yield found
        cursor = found.next
        if cursor is None:
            return


def check_limit(limit: int) -> None:
    """Refuse a size of a page that is out of range."""
    if isinstance(limit, bool) or not 1 <= limit <= MAX_LIMIT:
        raise BadInput("out of range", field="limit", value=limit, hint=f"1 to {MAX_LIMIT}")


def encode_cursor(values: list[Any]) -> str:
    """Return the cursor of the page that begins after these values of the key."""
    return base64.urlsafe_b64encode(msgspec.json.encode(values)).decode().rstrip("=")


def decode_cursor(cursor: str, keys: tuple[Column, ...]) -> tuple[Any, ...]:
    """Return the values of the key after which a page begins."""
    kinds = tuple(_KEY_TYPES[key.type.python_type] for key in keys)
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        text = base64.b64decode(padded, b"-_", validate=True)
        values: tuple[Any, ...] = msgspec.json.decode(text, type=tuple[kinds])  # type: ignore[valid-type]
    except (ValueError, msgspec.MsgspecError):
        hint = "use the `next` of the previous page"
        raise BadInput("not a cursor", field="cursor", value=cursor, hint=hint) from None
    return values


class SchemaMismatch(Unavailable):
    """An error: the database has another schema than this program needs."""

    exit_code = 2
    slug = "schema-mismatch"


def expected_version() -> str:
    """Return the schema version that this program needs."""
    return EXPECTED_VERSION


def current_version(database: Database) -> str | None:
    """Return the schema version of a database; None: it is empty."""
    with database.reading() as session:
        return version_of(session)


def version_of(session: Session) -> str | None:
    """Return the schema version that a session sees; None: the database is empty."""
    if not inspect(session.connection()).has_table("alembic_version"):
        return None
    version: str | None = session.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return version


def migrate_schema(database: Database, to: str = "head") -> str | None:
    """Bring a database to a schema version, all or nothing; another process that tries waits.

    ``to`` is a version, ``head``, or ``base``, which drops everything. Return the version.
    """
    with database.writing() as session:
        refuse_newer(database.shown, version_of(session))
        return migrate_within(session, to)


def migrate_within(session: Session, to: str = "head") -> str | None:
    """Migrate in a writing transaction of the caller; see `migrate_schema`."""
    from alembic import command

    version = version_of(session)
    target = EXPECTED_VERSION if to == "head" else to
    if version != target:
        config = alembic_config()
        config.attributes["connection"] = session.connection()
        down = version is not None and (target == "base" or target < version)
        (command.downgrade if down else command.upgrade)(config, target)
    return version_of(session)


def prepare_schema(database: Database, *, make: bool = True) -> None:
    """Check that a database has the schema of this program.

    With ``make`` create the schema in an SQLite file that has none.
    """
    version = current_version(database)
    if version == EXPECTED_VERSION:
        return
    refuse_newer(database.shown, version)
    if version is None and make and database.is_sqlite:
        migrate_schema(database)
        return
    first = "end older gates" if database.is_sqlite else "back up with compatgate db backup"
    raise SchemaMismatch(
        f"the database {database.shown} has schema {version or 'none'}, needed {EXPECTED_VERSION}",
        field="database",
        hint=f"{first}, then run: compatgate db upgrade --database {database.shown}",
    )


def refuse_newer(name: str, version: str | None) -> None:
    """Refuse the schema version of a newer program."""
    if version is not None and version > EXPECTED_VERSION:
        raise newer_schema(name, version)


def newer_schema(name: str, version: str) -> SchemaMismatch:
    """Return the error for a database or backup of a newer program."""
    return SchemaMismatch(
        f"a newer compatgate wrote {name}: schema {version}, known is {EXPECTED_VERSION}",
        field="database",
        hint="upgrade compatgate on this machine, or restore a backup from before the upgrade",
    )


def alembic_config() -> Config:
    """Return the configuration of the library that migrates."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(migrations_dir()).replace("%", "%%"))
    return config


def in_limit(session: Session, column: Any, patterns: TargetPatterns) -> ColumnElement[bool]:
    """Return the condition that a column has the name of a target within a limit.

    Both databases compare in the name's case. Without patterns no row passes.
    """
    if session.get_bind().dialect.name == "sqlite":
        return or_(false(), *(column.op("GLOB")(pattern) for pattern in patterns))
    like = (pattern.replace("_", r"\_").replace("*", "%") for pattern in patterns)
    return or_(false(), *(column.like(pattern, escape="\\") for pattern in like))


def in_parts(items: Sequence[T], most: int = 500) -> Iterator[Sequence[T]]:
    """Yield parts of a list, each for one statement: SQLite limits its parameters."""
    for start in range(0, len(items), most):
        yield items[start : start + most]
