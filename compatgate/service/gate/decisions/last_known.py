"""Keep a replica's last-known-good snapshot in a file, to decide without the database.

The file has what decisions rest on, in the form of a bundle's payload, and what authentication
needs: digests of tokens, never secrets. A second, small file says when the database last confirmed
the first. Both are written whole: a reader sees the old content or the new one. All processes of a
replica share them.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.facts import Facts
from compatgate.errors import Unavailable, quote_error
from compatgate.kit import clock
from compatgate.kit.files import locked, replacing, sync_path
from compatgate.service.access.token_table import KnownToken
from compatgate.service.matrix.snapshots.snapshot import Payload, Snapshot, restore_snapshot

FORMAT = 1
FILE = "snapshot.json"
CONFIRMED = "confirmed.json"
_LOCK = "snapshot.lock"
_LARGEST_FILE = 1024 * 1024 * 1024
_log = logging.getLogger("compatgate.gate")
_encode = msgspec.json.Encoder(order="sorted").encode


class LastKnown(Struct, frozen=True):
    """The content of the file: number of the latest run, every token, a bundle's payload."""

    format: int
    database: str
    confirmed_at: datetime
    evidence: int
    tokens: tuple[KnownToken, ...]
    payload: Payload

    def snapshot(self, facts: Facts) -> Snapshot:
        """Return the snapshot, resolved with these facts."""
        return restore_snapshot(self.payload, facts, self.evidence)


class _Confirmed(Struct, frozen=True):
    sha256: str
    state: str
    confirmed_at: datetime


class LostMatrix(Unavailable):
    """An error: the database is missing or empty although it had a matrix."""

    exit_code = 2
    slug = "lost-matrix"

    def __init__(self, database: str, known: LastKnown, file: Path) -> None:
        at = clock.readable(known.confirmed_at)
        super().__init__(
            f"the database {database} is missing or empty, but had matrix revision"
            f" {known.payload.revision} on {at} (says {file})",
            field="database",
            value=database,
            hint="restore a backup; or start with an empty matrix: serve --start-empty",
        )


class SnapshotFile:
    """The files of one replica, in its state folder; ``database``: URL without its password."""

    def __init__(self, folder: Path, database: str) -> None:
        self.path = folder / FILE
        self._confirmed = folder / CONFIRMED
        self._lock = folder / _LOCK
        self._database = database
        self._failing = False

    def read(self) -> LastKnown | None:
        """Return the content; None: there is no file, or it is unusable, which is logged."""
        try:
            with self.path.open("rb") as stream:
                sha256, _, body = stream.read(_LARGEST_FILE + 1).partition(b"\n")
            if hashlib.sha256(body).hexdigest().encode() != sha256:
                raise ValueError("its digest does not match its content")
            content = msgspec.json.decode(body, type=LastKnown)
        except FileNotFoundError:
            return None
        except OSError as error:
            why = f"cannot be read: {quote_error(error)}"
        except (ValueError, msgspec.MsgspecError, RecursionError) as error:
            why = f"is damaged: {quote_error(error)}"
        else:
            confirmed = self._read_confirmed()
            if content.format != FORMAT:
                why = f"has format {content.format}, expected {FORMAT}"
            elif content.database != self._database:
                why = f"belongs to {content.database}, not to {self._database}"
            elif confirmed is None or confirmed.sha256 != sha256.decode():
                return content
            else:
                latest = max(content.confirmed_at, confirmed.confirmed_at)
                return replace(content, confirmed_at=latest)
        _log.warning("the last-known-good snapshot %s %s; it is ignored", self.path, why)
        return None

    def write(self, content: LastKnown, state: str) -> bool:
        """Replace the file, unless another process has confirmed a later state.

        Return whether the file has this state now.
        """
        body = _encode(content)
        sha256 = hashlib.sha256(body).hexdigest()
        with self._reporting(), locked(self._lock):
            known = self._read_confirmed()
            if known is not None and known.confirmed_at > content.confirmed_at:
                return known.state == state
            _replace_file(self.path, sha256.encode() + b"\n" + body)
            confirmed = _Confirmed(sha256, state, content.confirmed_at)
            _replace_file(self._confirmed, _encode(confirmed))
            return True
        return False

    def adopt(self, state: str, moment: datetime) -> bool:
        """Note that the database confirmed the file at a moment, if the file has this state."""
        with self._reporting(), locked(self._lock):
            known = self._read_confirmed()
            if known is None or known.state != state or not self.path.exists():
                return False
            if known.confirmed_at < moment:
                _replace_file(self._confirmed, _encode(replace(known, confirmed_at=moment)))
            return True
        return False

    def _read_confirmed(self) -> _Confirmed | None:
        try:
            return msgspec.json.decode(self._confirmed.read_bytes(), type=_Confirmed)
        except (OSError, ValueError, msgspec.MsgspecError):
            return None

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """Log the first of several errors: no decision depends on a write."""
        try:
            yield
        except OSError as error:
            if not self._failing:
                reason = error.strerror or error
                _log.warning("cannot write the last-known-good snapshot %s: %s", self.path, reason)
            self._failing = True
        else:
            self._failing = False


def _replace_file(path: Path, content: bytes) -> None:
    """Write a file whole and durably, readable by its owner alone."""
    with replacing(path) as file:
        file.write(content)
    sync_path(path.parent)
