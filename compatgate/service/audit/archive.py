"""Write decisions of a month to a file that can be verified alone, and read such a file.

An archive is JSON lines, compressed with Zstandard. The first line is the head, the last one the
tail; between them are verdicts and batches, each verdict before the first batch that gave it::

    {"archive": "compatgate.dev/decisions/v1", "month": "2026-09", "first": 1, "last": 812,
     "previous": {"WRITER": [41, "HASH"]}}
    {"verdict": "vd_...", "brought": 1, "body": "{...}"}
    {"batch": 1, "writer": "...", "sequence": 42, "decided_at": "...", "late": false,
     "claims": {"vd_...": "SHA-256"}, "hash": "...", "decisions": [[...]]}
    {"batches": 812, "decisions": 90311, "verdicts": 204}

The hash of each batch covers its decisions, its claims and the batch before of the same writer
(`compatgate.service.gate.batches`), so a changed line shows. The audit chain holds the digest of
the whole file.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from msgspec import Struct

from compatgate.core.performance import sha256
from compatgate.errors import BadInput, DamagedContent, Unavailable, quote_error
from compatgate.kit.files import replacing, sync_folder
from compatgate.service.gate.batches import FIRST_PREVIOUS, encode_values, hash_batch

FORMAT = "compatgate.dev/decisions/v1"
_LEVEL = 9
_MAX_LINE_BYTES = 64 * 1024 * 1024
_MAX_PROBLEMS = 100


class ArchiveHead(Struct, frozen=True, forbid_unknown_fields=True):
    """The first line.

    Attributes:
        archive: the format.
        month: ``2026-09``.
        first: number of the first batch that the archive may have.
        last: number of the last one.
        previous: sequence and hash of the batch before, of writers that an older archive has.
    """

    archive: str
    month: str
    first: int
    last: int
    previous: dict[str, tuple[int, str]]


class ArchivedVerdict(Struct, frozen=True, forbid_unknown_fields=True):
    """A verdict, as it was given.

    Attributes:
        brought: number of the batch that brought it, perhaps one of an older archive; None: an
            audit link of an older version did.
    """

    verdict: str
    brought: int | None
    body: str


class ArchivedBatch(Struct, frozen=True, forbid_unknown_fields=True):
    """A batch of decisions; attributes as of `compatgate.service.gate.batches.StoredBatch`."""

    batch: int
    writer: str
    sequence: int
    decided_at: str
    late: bool
    claims: dict[str, str]
    hash: str
    decisions: list[list[Any]]


class ArchiveTail(Struct, frozen=True, forbid_unknown_fields=True):
    """The last line: numbers of what precedes it."""

    batches: int
    decisions: int
    verdicts: int


class ArchiveReport(Struct, frozen=True):
    """The result of reading an archive.

    Attributes:
        sha256: of the file; the audit chain holds it.
        problems: mismatches, in words; empty: the archive is intact.
    """

    head: ArchiveHead
    tail: ArchiveTail
    sha256: str
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Return whether the archive is intact."""
        return not self.problems

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "ok": self.ok,
            "month": self.head.month,
            "first": self.head.first,
            "last": self.head.last,
            **msgspec.structs.asdict(self.tail),
            "sha256": self.sha256,
            "problems": list(self.problems),
        }


_encode = msgspec.json.Encoder().encode
Line = ArchivedVerdict | ArchivedBatch


def write_archive(path: Path, head: ArchiveHead, lines: Iterator[Line]) -> str:
    """Write an archive: the file has its name only once it is complete and on the disk.

    Args:
        path: of the file, mode 0600; an older one is replaced.
        head: the first line.
        lines: verdicts and batches, in order.

    Returns:
        SHA-256 of the file.

    Raises:
        Unavailable: the file cannot be written.
    """
    try:
        with replacing(path) as stream:
            digest = _write(stream, head, lines)
        sync_folder(path.parent)  # rows are removed because the file is there
    except OSError as error:
        raise Unavailable(
            f"cannot write {path}: {quote_error(error)}",
            field="--to",
            value=str(path),
            hint="name a writable folder with enough space; nothing was removed",
        ) from None
    return digest


def _write(stream: BinaryIO, head: ArchiveHead, lines: Iterator[Line]) -> str:
    from zstandard import ZstdCompressor  # not for every command

    digest = hashlib.sha256()
    counts = {"batches": 0, "decisions": 0, "verdicts": 0}
    compressor = ZstdCompressor(level=_LEVEL, write_checksum=True).compressobj()

    def put(compressed: bytes) -> None:
        digest.update(compressed)
        stream.write(compressed)

    put(compressor.compress(_encode(head) + b"\n"))
    for line in lines:
        if isinstance(line, ArchivedBatch):
            counts["batches"] += 1
            counts["decisions"] += len(line.decisions)
        else:
            counts["verdicts"] += 1
        put(compressor.compress(_encode(line) + b"\n"))
    put(compressor.compress(_encode(ArchiveTail(**counts)) + b"\n"))
    put(compressor.flush())
    return digest.hexdigest()


def verify_archive(path: Path) -> ArchiveReport:
    """Recompute every hash of an archive.

    Args:
        path: of the file.

    Raises:
        BadInput: the file cannot be read, or is not an archive.
        DamagedContent: the file is cut short, or not what was compressed.
    """
    reading = _Reading()
    digest = _read_lines(path, reading.take)
    if reading.head is None:
        raise BadInput(f"{path} is not an archive of decisions", value=str(path), hint=_HINT)
    if reading.tail is None:
        raise DamagedContent(f"{path} is cut short: its last line is missing", value=str(path))
    return ArchiveReport(reading.head, reading.tail, digest, tuple(reading.problems))


_HINT = "archives are written by: compatgate audit archive"


def _read_lines(path: Path, take: Callable[[bytes], None]) -> str:
    """Hand over the lines of a file, and return its digest."""
    from zstandard import ZstdDecompressor, ZstdError

    try:
        with path.open("rb") as stream:
            digesting = _DigestingReader(stream)
            with ZstdDecompressor().stream_reader(digesting) as unpacked:  # type: ignore[arg-type]
                lines = io.BufferedReader(unpacked)
                while line := lines.readline(_MAX_LINE_BYTES + 1):
                    if len(line) > _MAX_LINE_BYTES:
                        raise DamagedContent(f"{path} has a line that is too long")
                    take(line)
            while digesting.read(65536):
                pass
            return digesting.digest.hexdigest()
    except OSError as error:
        reason = quote_error(error)
        raise BadInput(f"cannot read {path}: {reason}", value=str(path), hint=_HINT) from None
    except ZstdError as error:
        raise DamagedContent(
            f"{path} is damaged: {quote_error(error)}", value=str(path), hint=_HINT
        ) from None


class _DigestingReader:
    """A stream that computes the digest of what is read."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes."""
        content = self._stream.read(size)
        self.digest.update(content)
        return content


class _Reading:
    """A pass over the lines of an archive."""

    def __init__(self) -> None:
        self.head: ArchiveHead | None = None
        self.tail: ArchiveTail | None = None
        self.problems: list[str] = []
        self._heads: dict[str, tuple[int, str]] = {}
        self._bodies: dict[str, str] = {}
        self._unclaimed: dict[str, int] = {}
        self._number = 0
        self._batches = 0
        self._decisions = 0

    def take(self, line: bytes) -> None:
        self._number += 1
        try:
            if self.head is None:
                self._begin(msgspec.json.decode(line, type=ArchiveHead))
            elif line.startswith(b'{"verdict"'):
                found = msgspec.json.decode(line, type=ArchivedVerdict)
                self._bodies[found.verdict] = sha256(found.body.encode())
                if found.brought is not None and found.brought >= self.head.first:
                    self._unclaimed[found.verdict] = found.brought
            elif line.startswith(b'{"batch"'):
                self._batch(msgspec.json.decode(line, type=ArchivedBatch))
            else:
                self._end(msgspec.json.decode(line, type=ArchiveTail))
        except msgspec.MsgspecError as error:
            if self.head is None:
                return
            self._tell(f"line {self._number}: {quote_error(error)}")

    def _begin(self, head: ArchiveHead) -> None:
        if head.archive != FORMAT:
            raise BadInput(f"the archive has the format {head.archive}, expected {FORMAT}")
        self.head = head
        self._heads = dict(head.previous)

    def _batch(self, line: ArchivedBatch) -> None:
        name = f"batch {line.sequence} of writer {line.writer}"
        self._batches += 1
        self._decisions += len(line.decisions)
        sequence, previous = self._heads.get(line.writer, (0, FIRST_PREVIOUS))
        if sequence != line.sequence - 1:
            self._tell(f"{name}: does not follow batch {sequence}")
        content = encode_values(line.decisions)
        if line.hash != hash_batch(line.writer, line.sequence, previous, content, line.claims):
            self._tell(f"{name}: was changed")
        self._heads[line.writer] = (line.sequence, line.hash)
        for values in line.decisions:
            if values[0] not in self._bodies:
                self._tell(f"verdict {values[0]}: is missing ({name})")
        for verdict, digest in line.claims.items():
            if self._unclaimed.get(verdict) == line.batch:
                del self._unclaimed[verdict]
                if self._bodies[verdict] != digest:
                    self._tell(f"verdict {verdict}: was changed ({name})")

    def _end(self, tail: ArchiveTail) -> None:
        self.tail = tail
        for verdict in self._unclaimed:
            self._tell(f"verdict {verdict}: no batch claims it")
        found = (self._batches, self._decisions, len(self._bodies))
        if found != (tail.batches, tail.decisions, tail.verdicts):
            counted = f"{found[0]} batches, {found[1]} decisions and {found[2]} verdicts"
            self._tell(f"the archive has {counted}, but its last line states other numbers")

    def _tell(self, problem: str) -> None:
        if len(self.problems) < _MAX_PROBLEMS:
            self.problems.append(problem)
