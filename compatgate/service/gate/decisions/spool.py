"""Keep batches of decisions in a file while their database is unavailable.

Each process has a file of its own, locked for as long as it lives; whoever gets the lock of another
file may deliver what a dead process left there. The file has its full size from the beginning, so
that a full disk does not stop it. Each record is on disk before `Spool.append` returns. A record
that was being written at a loss of power fails its checksum, and is as if it had never been.

A file is a header and records. A record is its length, a checksum and the batch: MessagePack,
Zstandard. The header has a random number that each checksum covers; emptying the file changes it,
so that old records beyond the new ones mean nothing.
"""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
import struct
import threading
import zlib
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec import Struct

from compatgate.core.performance import sha256
from compatgate.errors import Unavailable, quote_error
from compatgate.kit.clock import from_iso
from compatgate.kit.files import sync_path
from compatgate.service.gate.decisions.batch_store import Delivery

SPOOL_BYTES = 64 * 1024 * 1024
"""Size of a process's file, unless the operator says otherwise."""
_MAGIC = b"CGSPOOL1"
_HEADER = struct.Struct("<8s8s16s")
"""Magic, random number, digest of the database's URL."""
_RECORD = struct.Struct("<II")
"""Length of the record, checksum."""
_ENDING, _UNFINISHED, _ASIDE = ".spool", ".new", ".aside"
_LARGEST_RECORD = 256 * 1024 * 1024
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Delivery).decode
_log = logging.getLogger("compatgate.gate")


class SpoolOptions(Struct, frozen=True):
    """The place and size of a process's spool."""

    folder: Path
    size: int = SPOOL_BYTES


class _Place(Struct, frozen=True, gc=False):
    offset: int
    length: int
    decided_at: str


class SpoolFile:
    """An open, locked file of batches."""

    def __init__(self, path: Path, descriptor: int, size: int, database: bytes) -> None:
        self.path = path
        self._descriptor = descriptor
        self._size = size
        self._database = database
        self._number = b""
        self._end = _HEADER.size

    @classmethod
    def create(cls, folder: Path, size: int, database: bytes) -> SpoolFile:
        """Make an empty file of its full size; nobody sees it before it is locked."""
        name = secrets.token_hex(8)
        unfinished = folder / f"{name}{_UNFINISHED}"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(unfinished, flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.posix_fallocate(descriptor, 0, size)
            made = cls(folder / f"{name}{_ENDING}", descriptor, size, database)
            made.empty()
            os.fsync(descriptor)
            os.rename(unfinished, made.path)
            sync_path(folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(unfinished)
            os.close(descriptor)
            raise
        return made

    @classmethod
    def adopt(cls, path: Path, database: bytes) -> SpoolFile | None:
        """Open a file that nobody uses; None: somebody does, or it belongs to another database."""
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            found = os.fstat(descriptor)
            header = os.pread(descriptor, _HEADER.size, 0)
            magic, number, owner = _HEADER.unpack(header.ljust(_HEADER.size, b"\0"))
            if found.st_nlink and magic == _MAGIC and owner == database:
                made = cls(path, descriptor, found.st_size, database)
                made._number = number
                return made
            if magic != _MAGIC:
                _log.warning("%s is not a spool of decisions: it is ignored", path)
        except BlockingIOError:
            pass
        os.close(descriptor)
        return None

    def empty(self) -> None:
        """Forget every record."""
        self._number = secrets.token_bytes(8)
        os.pwrite(self._descriptor, _HEADER.pack(_MAGIC, self._number, self._database), 0)
        os.fdatasync(self._descriptor)
        self._end = _HEADER.size

    @property
    def used(self) -> int:
        """Return the number of used bytes."""
        return self._end - _HEADER.size

    def append(self, delivery: Delivery) -> _Place:
        """Write a record, and return once it is on disk."""
        from zstandard import ZstdCompressor

        payload = ZstdCompressor(level=1).compress(_encode(delivery))
        record = _RECORD.pack(len(payload), self._check(payload)) + payload
        if len(record) > self._size - self._end:
            raise OSError(f"the spool is full: {self.used} of {self._size} bytes are used")
        if os.pwrite(self._descriptor, record, self._end) != len(record):
            raise OSError("the disk is full")
        os.fdatasync(self._descriptor)
        place = _Place(self._end, len(payload), delivery.batch.decided_at)
        self._end += len(record)
        return place

    def read(self, place: _Place) -> Delivery:
        """Return the batch of a record."""
        return _load(os.pread(self._descriptor, place.length, place.offset + _RECORD.size))

    def scan(self) -> Iterator[Delivery]:
        """Yield the batches that are in order, and pass over those that are damaged."""
        payload, is_good = self._read_at(self._end)
        while payload:
            end = self._end + _RECORD.size + len(payload)
            following = self._read_at(end)
            if is_good:
                yield _load(payload)
            elif following[1]:
                _log.error("%s: the record at byte %d is damaged", self.path, self._end)
            else:  # torn while it was written: it was the last one
                return
            self._end = end
            payload, is_good = following

    def _read_at(self, offset: int) -> tuple[bytes, bool]:
        """Return a record, and whether it is in order; empty: nothing there can be one."""
        head = os.pread(self._descriptor, _RECORD.size, offset)
        if len(head) < _RECORD.size:
            return b"", False
        length, check = _RECORD.unpack(head)
        if not 0 < length <= min(_LARGEST_RECORD, self._size - offset):
            return b"", False
        payload = os.pread(self._descriptor, length, offset + _RECORD.size)
        return payload, len(payload) == length and self._check(payload) == check

    def _check(self, payload: bytes) -> int:
        return zlib.crc32(payload, zlib.crc32(self._number))

    def is_in_place(self) -> bool:
        """Return whether the file is still where it was made."""
        try:
            there, mine = os.stat(self.path), os.fstat(self._descriptor)
        except OSError:
            return False
        return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)

    def set_aside(self) -> Path:
        """Rename the file, so that nobody tries to deliver it again, and return its path."""
        place = self.path.with_name(self.path.name + _ASIDE)
        os.rename(self.path, place)
        sync_path(place.parent)
        return place

    def shrink(self) -> None:
        """Give back the bytes after the last record of this process."""
        os.ftruncate(self._descriptor, self._end)

    def close(self, *, remove: bool = False) -> None:
        """Close the file, and so unlock it; or remove it first."""
        with suppress(OSError):
            if remove and self.is_in_place():
                os.unlink(self.path)
        os.close(self._descriptor)


class Spool:
    """The spool of one process; any thread may use it.

    ``database``: URL of the database without its password; spools of others are left alone.
    """

    def __init__(self, options: SpoolOptions, database: str) -> None:
        self._options = options
        self._database = bytes.fromhex(sha256(database.encode()))[:16]
        self._lock = threading.Lock()
        self._file: SpoolFile | None = None
        self._places: deque[_Place] = deque()

    @contextmanager
    def _using(self) -> Iterator[SpoolFile]:
        with self._lock:
            try:
                if self._file is not None and not self._file.is_in_place():
                    if self._places:
                        raise OSError("the file was deleted with undelivered decisions")
                    self._file.close()
                    self._file = None
                if self._file is None:
                    folder, size = self._options.folder, self._options.size
                    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                    self._file = SpoolFile.create(folder, size, self._database)
                yield self._file
            except OSError as error:
                reason = quote_error(error)
                raise Unavailable(
                    f"the spool {self._options.folder} takes no decision: {reason}",
                    field="state",
                    hint="bring the database, or the central gate, back; serve --spool-size sets"
                    " the size",
                ) from error

    def append(self, delivery: Delivery) -> None:
        """Store a batch, and return once it is on disk."""
        with self._using() as file:
            self._places.append(file.append(delivery))

    def check(self) -> None:
        """Check that a batch could be stored; make the file if it is missing."""
        with self._using() as file:
            if self._options.size - _HEADER.size - file.used < self._options.size // 50:
                raise OSError("the spool is full")

    @property
    def batches(self) -> int:
        """Return the number of batches to deliver."""
        return len(self._places)

    @property
    def used(self) -> int:
        """Return the number of bytes in use."""
        file = self._file
        return file.used if file is not None else 0

    @property
    def size(self) -> int:
        """Return the number of bytes of the file."""
        return self._options.size

    @property
    def oldest(self) -> datetime | None:
        """Return when the first decision to deliver was made; None: there is none."""
        try:
            return from_iso(self._places[0].decided_at)
        except IndexError:  # another thread may have delivered it just now
            return None

    def peek(self, most: int) -> list[Delivery]:
        """Return the first batches to deliver."""
        with self._lock:
            if self._file is None:
                return []
            return [self._file.read(self._places[n]) for n in range(min(most, len(self._places)))]

    def delivered(self, count: int) -> None:
        """Forget the first batches: they are delivered. An empty file begins anew."""
        with self._lock:
            for _ in range(count):
                self._places.popleft()
            if not self._places and self._file is not None and self._file.used:
                try:
                    self._file.empty()
                except OSError:  # which number its header has is unknown: begin another file
                    self._file.close(remove=True)
                    self._file = None

    def set_aside(self) -> Path:
        """Set the file aside for the operator, and begin another one with the next batch."""
        with self._lock:
            if self._file is None:
                raise OSError("the file does not exist")
            place = self._file.set_aside()
            with suppress(OSError):
                self._file.shrink()
            self._file.close()
            self._file = None
            self._places.clear()
            return place

    def count_aside(self) -> int:
        """Return the number of files that were set aside, also by processes before this one."""
        try:
            return sum(1 for _ in self._options.folder.glob(f"*{_ENDING}{_ASIDE}"))
        except OSError:
            return 0

    def others(self) -> Iterator[SpoolFile]:
        """Yield the files of processes that are gone; close each."""
        own = self._file.path if self._file is not None else None
        with suppress(OSError):
            for path in sorted(self._options.folder.glob(f"*{_ENDING}")):
                with suppress(OSError):
                    if path != own and (file := SpoolFile.adopt(path, self._database)):
                        yield file

    def abandon(self) -> None:
        """Leave the file to the parent process, whose it is."""
        if self._file is not None:
            self._file.close()

    def close(self) -> None:
        """Close the file; one with batches stays, for another process to deliver."""
        with self._lock:
            if self._file is not None:
                self._file.close(remove=not self._places)
            self._file = None


def _load(payload: bytes) -> Delivery:
    from zstandard import ZstdDecompressor

    return _decode(ZstdDecompressor().decompress(payload, max_output_size=_LARGEST_RECORD))
