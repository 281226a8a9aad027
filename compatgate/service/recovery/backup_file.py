"""Write and read backup files: the rows of every table, in a form that no database owns.

A backup is a Zstandard stream of JSON lines. The first line is the header. Each table follows: a
line with its name and columns, then a line for each row. The last line is the trailer: the
number of rows of each table, and the SHA-256 of all lines before it. A file without its trailer
is truncated. Times are ISO text, and binary values are objects with base64.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, Literal, Protocol, cast

import msgspec
import zstandard
from msgspec import Struct

from compatgate.errors import CompatgateError, quote_error
from compatgate.strict_json import DECODE_ERRORS

FORMAT = 1
LEVEL = 6
LARGEST_LINE = 512 * 1024 * 1024
_CHUNK = 1024 * 1024


class DamagedBackup(CompatgateError):
    """An error: a file is not a backup, or not the backup that was written."""

    status = 422
    exit_code = 2
    slug = "damaged-backup"


class BackupHeader(Struct, frozen=True, kw_only=True):
    """The first line of a backup.

    Attributes:
        compatgate: kind of the file.
        format: version of the file format.
        program: version of compatgate that wrote the file.
        schema: schema version of the database.
        made_at: ISO time; the backup shows the database at this time.
        database: kind of the database, ``sqlite`` or ``postgresql``.
        audit_links: number of links in the audit chain.
        audit_head: hash of the last link.
    """

    compatgate: Literal["backup"] = "backup"
    format: int
    program: str
    schema: str
    made_at: str
    database: str
    audit_links: int
    audit_head: str


class TableHeader(Struct, frozen=True):
    """The line before the rows of a table."""

    table: str
    columns: tuple[str, ...]


class BackupTrailer(Struct, frozen=True):
    """The last line: row counts by table, and the SHA-256 of all lines before this one."""

    rows: dict[str, int]
    sha256: str


class _Binary(Struct, frozen=True):
    base64: bytes


class SupportsWrite(Protocol):
    """A binary file to write to."""

    def write(self, content: bytes, /) -> int:
        """Write bytes."""

    def flush(self) -> None:
        """Write what is buffered."""


Row = Sequence[Any]
_encode = msgspec.json.Encoder().encode


class BackupWriter:
    """A writer of one backup.

    Args:
        file: to write to.
        header: the first line.

    Raises:
        OSError: the file cannot be written (every method).
    """

    def __init__(self, file: SupportsWrite, header: BackupHeader) -> None:
        compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True)
        self._stream: Any = compressor.stream_writer(cast(BinaryIO, file), closefd=False)
        self._digest = hashlib.sha256()
        self._rows: dict[str, int] = {}
        self._write([_encode(header)])

    def add_table(self, name: str, columns: Sequence[str], rows: Iterator[Sequence[Row]]) -> None:
        """Write a table; ``rows`` come in groups, which bound the memory."""
        self._write([_encode(TableHeader(name, tuple(columns)))])
        self._rows[name] = 0
        for group in rows:
            self._write([_encode([_to_json(value) for value in row]) for row in group])
            self._rows[name] += len(group)

    def finish(self) -> BackupTrailer:
        """Write the trailer and the end of the stream."""
        trailer = BackupTrailer(self._rows, self._digest.hexdigest())
        self._stream.write(_encode(trailer) + b"\n")
        self._stream.close()
        return trailer

    def _write(self, lines: list[bytes]) -> None:
        if not lines:
            return
        content = b"\n".join(lines) + b"\n"
        self._digest.update(content)
        self._stream.write(content)


def _to_json(value: Any) -> Any:
    return _Binary(bytes(value)) if isinstance(value, (bytes, memoryview)) else value


class _AnyLine(Struct):
    """The first byte of a row, which is a list, unlike the other lines."""

    table: str | None = None
    rows: dict[str, int] | None = None


_read_rows = msgspec.json.Decoder(list[Any]).decode
_read_other = msgspec.json.Decoder(_AnyLine).decode
StartTable = Callable[[TableHeader], Callable[[list[list[Any]]], None]]
"""Called at each table; what it returns is called with each group of rows."""
_GROUP = 2000


def read_backup(
    file: BinaryIO, name: str, start: StartTable | None = None
) -> tuple[BackupHeader, BackupTrailer]:
    """Read a backup from its beginning to its end, and check its digest and counts.

    Args:
        file: to read; at its beginning, and left there.
        name: for errors.
        start: receives tables and rows; None: only check.

    Raises:
        DamagedBackup: the file is not a backup, is truncated, was changed, or has a newer format.
    """
    file.seek(0)
    try:
        return _Reading(name, start).run(_lines(file, name))
    finally:
        file.seek(0)


class _Reading:
    """One pass over the lines of a backup."""

    def __init__(self, name: str, start: StartTable | None) -> None:
        self._name = name
        self._start = start
        self._take: Callable[[list[list[Any]]], None] | None = None
        self._group: list[list[Any]] = []
        self._rows: dict[str, int] = {}
        self._table = TableHeader("", ())

    def run(self, lines: Iterator[bytes]) -> tuple[BackupHeader, BackupTrailer]:
        digest = hashlib.sha256()
        first = next(lines, b"")
        header = _header(first, self._name)
        digest.update(first + b"\n")
        for line in lines:
            if line.startswith(b"["):
                self._add_row(line)
            elif (trailer := self._other(line)) is not None:
                self._check_end(lines, trailer, digest.hexdigest())
                return header, trailer
            digest.update(line + b"\n")
        raise _damaged(self._name, "is truncated: its last line is missing")

    def _add_row(self, line: bytes) -> None:
        table = self._table
        if not table.columns:
            raise _damaged(self._name, "has rows before its first table")
        self._rows[table.table] += 1
        if self._take is None:
            return
        row = _decode(line, _read_rows, self._name)
        if len(row) != len(table.columns):
            raise _damaged(self._name, f"has a row of {table.table} with {len(row)} values")
        self._group.append([_from_json(value, self._name) for value in row])
        if len(self._group) >= _GROUP:
            self._flush()

    def _other(self, line: bytes) -> BackupTrailer | None:
        self._flush()
        found = _decode(line, _read_other, self._name)
        if found.rows is not None:
            decoder = msgspec.json.Decoder(BackupTrailer).decode
            trailer: BackupTrailer = _decode(line, decoder, self._name)
            return trailer
        self._table = _decode(line, msgspec.json.Decoder(TableHeader).decode, self._name)
        if self._table.table in self._rows:
            raise _damaged(self._name, f"holds the table {self._table.table} twice")
        self._rows[self._table.table] = 0
        self._take = self._start(self._table) if self._start else None
        return None

    def _flush(self) -> None:
        if self._take is not None and self._group:
            self._take(self._group)
        self._group = []

    def _check_end(self, lines: Iterator[bytes], trailer: BackupTrailer, digest: str) -> None:
        if trailer.sha256 != digest or trailer.rows != self._rows:
            raise _damaged(self._name, "was changed: its digest does not match")
        if next(lines, None) is not None:
            raise _damaged(self._name, "continues after its last line")


def _header(line: bytes, name: str) -> BackupHeader:
    try:
        stated = msgspec.json.decode(line, type=_Stated)
    except (msgspec.MsgspecError, *DECODE_ERRORS):
        raise _damaged(name, "is not a backup of compatgate") from None
    if stated.format > FORMAT:
        what = f"{name} has format {stated.format} of compatgate {stated.program}"
        raise DamagedBackup(f"{what}, expected {FORMAT}", field="backup", hint="upgrade compatgate")
    header: BackupHeader = _decode(line, msgspec.json.Decoder(BackupHeader).decode, name)
    return header


class _Stated(Struct):
    compatgate: Literal["backup"]
    format: int
    program: str


def _lines(file: BinaryIO, name: str) -> Iterator[bytes]:
    rest = b""
    try:
        with zstandard.ZstdDecompressor().stream_reader(file, closefd=False) as stream:
            while chunk := stream.read(_CHUNK):
                *whole, rest = (rest + chunk).split(b"\n") if rest else chunk.split(b"\n")
                yield from whole
                if len(rest) > LARGEST_LINE:
                    raise _damaged(name, f"has a line of more than {LARGEST_LINE} bytes")
    except zstandard.ZstdError:
        raise _damaged(name, "is damaged or not a backup: it cannot be decompressed") from None
    except OSError as error:
        raise _damaged(name, f"cannot be read: {quote_error(error)}") from None
    if rest:
        yield rest


def _decode(line: bytes, decode: Callable[[bytes], Any], name: str) -> Any:
    try:
        return decode(line)
    except (msgspec.MsgspecError, *DECODE_ERRORS) as error:
        raise _damaged(name, f"is damaged: {quote_error(error)}") from None


def _from_json(value: Any, name: str) -> Any:
    if not isinstance(value, dict):
        return value
    try:
        return msgspec.convert(value, _Binary).base64
    except msgspec.ValidationError as error:
        raise _damaged(name, f"is damaged: {quote_error(error)}") from None


def _damaged(name: str, problem: str) -> DamagedBackup:
    return DamagedBackup(
        f"{name} {problem}", field="backup", value=name, hint="take another backup of this database"
    )
