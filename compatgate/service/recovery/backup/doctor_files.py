"""Examine files of an installation: the SQLite file and its log, the state folder, and disks."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from compatgate.documents.quantities import describe_seconds
from compatgate.kit import clock
from compatgate.service.gate.decisions.last_known import SnapshotFile
from compatgate.service.gate.decisions.spool import Spool, SpoolOptions
from compatgate.service.recovery.backup.checks import Check

LEAST_FREE = 64 * 2**20
"""Bytes below which a disk counts as full."""
LOW_FREE = 1024 * 2**20
LARGE_LOG = 512 * 2**20
"""Bytes of a write-ahead log that show that a reader holds it open."""
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
SPOOL_FOLDER = "spool"
_SIDES = ("", "-wal", "-shm", "-turn")


def check_files(path: Path) -> Iterator[Check]:
    """Check owner, mode, write-ahead log and disk of an SQLite file."""
    yield _check_modes(path)
    yield _check_log(path)
    yield check_disk("disk", path.parent)


def _check_modes(path: Path) -> Check:
    for file in (Path(f"{path}{end}") for end in _SIDES):
        try:
            found = file.stat()
        except FileNotFoundError:
            continue
        if not os.access(file, os.R_OK | os.W_OK):
            what = f"this user (uid {os.getuid()}) cannot read and write {file}"
            return Check("files", "fail", what, f"run as uid {found.st_uid}, or change the owner")
        if found.st_mode & _OTHERS:
            what = f"other users can access {file} (mode {stat.S_IMODE(found.st_mode):04o})"
            return Check("files", "warn", what, f"chmod 600 {file}")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        what = f"this user cannot make files in {path.parent}, which SQLite's log needs"
        return Check("files", "fail", what, "change the owner or mode of the folder")
    return Check("files", "ok", f"{path}, {_size(path.stat().st_size)}, mode 0600")


def _check_log(path: Path) -> Check:
    try:
        size = Path(f"{path}-wal").stat().st_size
    except FileNotFoundError:
        return Check("log", "ok", "no write-ahead log: the database was closed properly")
    if size <= LARGE_LOG:
        return Check("log", "ok", f"the write-ahead log has {_size(size)}")
    what = f"the write-ahead log has {_size(size)}: a reader has been open for long"
    return Check("log", "warn", what, "end long reads such as stuck backups, or restart the gate")


def check_disk(name: str, folder: Path) -> Check:
    """Check the free space and free files of a folder's disk."""
    disk = os.statvfs(folder)
    free = disk.f_bavail * disk.f_frsize
    what = f"{_size(free)} free in {folder}"
    fix = "free space, or move to a larger disk; see compatgate db prune"
    if disk.f_files and not disk.f_favail:
        return Check(name, "fail", f"no file can be made in {folder}: no inodes are left", fix)
    if free < LEAST_FREE:
        return Check(name, "fail", what, fix)
    return Check(name, "warn" if free < LOW_FREE else "ok", what, fix if free < LOW_FREE else "")


def check_state(folder: Path, database: str) -> Iterator[Check]:
    """Check a replica's state folder: owner, mode, snapshot, waiting decisions and disk."""
    if not folder.exists():
        what = f"{folder} does not exist; serve makes it at its start"
        yield Check("state folder", "warn", what)
        return
    found = folder.stat()
    if not stat.S_ISDIR(found.st_mode) or not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        what = f"this user (uid {os.getuid()}) cannot write {folder}"
        yield Check("state folder", "fail", what, f"run as uid {found.st_uid}, or change the owner")
        return
    if found.st_mode & _OTHERS:
        mode = stat.S_IMODE(found.st_mode)
        what = f"other users can access {folder} (mode {mode:04o})"
        yield Check("state folder", "warn", what, f"chmod 700 {folder}")
    else:
        yield Check("state folder", "ok", str(folder))
    yield _check_snapshot(folder, database)
    yield _check_spools(folder, database)
    yield check_disk("state disk", folder)


def _check_snapshot(folder: Path, database: str) -> Check:
    """Check the snapshot that the replica decides on while its database is unavailable."""
    file = SnapshotFile(folder, database)
    if not file.path.exists():
        return Check("last snapshot", "warn", "none yet; serve writes it within seconds")
    known = file.read()
    if known is None:
        what = f"{file.path} is damaged, or of another database"
        return Check("last snapshot", "warn", what, "remove it; serve writes it again")
    age = describe_seconds((clock.now() - known.confirmed_at).total_seconds())
    what = f"revision {known.payload.revision}, the database confirmed it {age} ago"
    return Check("last snapshot", "ok", what)


def _check_spools(folder: Path, database: str) -> Check:
    """Look for decisions of ended processes that no gate has delivered."""
    waiting = 0
    spool = Spool(SpoolOptions(folder / SPOOL_FOLDER), database)
    if aside := spool.count_aside():
        what = f"{aside} spools in {folder / SPOOL_FOLDER} are set aside: no log has them"
        return Check("spool", "warn", what, "see the runbook, CompatgateSpoolSetAside")
    for file in spool.others():
        try:
            waiting += sum(delivery.batch.count for delivery in file.scan())
        finally:
            file.close()
    if waiting:
        what = f"{waiting} decisions of ended processes wait in {folder / SPOOL_FOLDER}"
        return Check("spool", "warn", what, "start the gate with this state folder: it delivers")
    return Check("spool", "ok", "no decision of an ended process waits")


def _size(count: int) -> str:
    return f"{count / 2**20:.1f} MiB" if count < 2**30 else f"{count / 2**30:.1f} GiB"
