"""Keep the last stored batch of each writer next to an SQLite file, which must go on holding it.

A log that another program cuts, or an older copy of the file, loses the latest decisions, and
nothing within the database shows it. So each process notes the batch that it stored last in the
file whose lock gives writers their turn, once the disk has the batch. The note itself is not
synced: after a loss of power it names an earlier batch, which is stored, too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

from sqlalchemy import URL

from compatgate.kit.database.database import Database
from compatgate.kit.database.sqlite import turn_path

if TYPE_CHECKING:
    from compatgate.service.gate.decisions.batches import DecisionBatch

Heads = dict[str, tuple[int, str]]
"""Sequence and hash of the last batch, by writer."""
Run = Callable[[str, tuple[Any, ...]], Any]
"""Runs a statement with its values, on any connection."""
_SLOTS = 64
"""Writers that have a place each; few are alive, and a place that two share has one of them."""
_BYTES = 256
_NOTE = re.compile(rb"(\S+ \d+ [0-9a-f]{64}) ([0-9a-f]{8})\n *")
_STORED = "SELECT hash FROM decision_batches WHERE writer = ? AND sequence = ?"
_ANCHORED = "SELECT 1 FROM decision_writers WHERE writer = ? AND sequence >= ?"


class HeadNotes:
    """The notes of one process; they do nothing for PostgreSQL, whose server keeps its log."""

    def __init__(self, database: Database) -> None:
        self._path = turn_path(database.url)
        self._descriptor: int | None = None

    def note(self, batches: Iterable[DecisionBatch]) -> None:
        """Note that batches are stored, in the order of each writer."""
        if self._path is None:
            return
        with suppress(OSError):  # a full disk: the earlier note stays true
            if self._descriptor is None:
                self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            for batch in {one.writer: one for one in batches}.values():
                text = f"{batch.writer} {batch.sequence} {batch.hash}".encode()
                line = b"%s %08x\n" % (text, crc32(text))
                place = crc32(batch.writer.encode()) % _SLOTS * _BYTES
                if len(line) <= _BYTES:
                    os.pwrite(self._descriptor, line.ljust(_BYTES), place)

    def close(self) -> None:
        """Close the file."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def read_heads(url: URL) -> Heads:
    """Read the notes; to compare them, read them before the database, or while nobody writes."""
    path, found = turn_path(url), Heads()
    with suppress(OSError):
        content = Path(path).read_bytes() if path else b""
        for place in range(0, len(content), _BYTES):
            note = _NOTE.fullmatch(content[place : place + _BYTES])
            if note is not None and int(note[2], 16) == crc32(note[1]):  # else half is written
                writer, sequence, hashed = note[1].decode().split()
                found[writer] = int(sequence), hashed
    return found


def find_lost(run: Run, heads: Mapping[str, tuple[int, str]]) -> Heads:
    """Return the batches that a database lacks and no anchor names."""
    lost = Heads()
    for writer, (sequence, hashed) in heads.items():
        row = run(_STORED, (writer, sequence)).fetchone()
        is_stored = row is not None and bytes(row[0]).hex() == hashed
        if not is_stored and run(_ANCHORED, (writer, sequence)).fetchone() is None:
            lost[writer] = sequence, hashed
    return lost


def refuse_lost(run: Run, heads: Heads, database: Database) -> None:
    """Refuse to work any more with a file that lacks stored decisions."""
    if heads:
        run("PRAGMA shrink_memory", ())  # what this connection remembers may be nowhere else
        if find_lost(run, heads):
            database.file.lose(
                "lacks decisions that were stored: its log was cut, or an older copy took its place"
            )
            database.file.require()
