"""Examine files of an installation: the SQLite file and its log, the state folder, and disks."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from compatgate.service.recovery.checks import Check

LEAST_FREE = 64 * 2**20
"""Bytes below which a disk counts as full."""
LOW_FREE = 1024 * 2**20
LARGE_LOG = 512 * 2**20
"""Bytes of a write-ahead log that show that a reader holds it open."""
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
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


def check_state(folder: Path) -> Iterator[Check]:
    """Check a replica's state folder: owner, mode, content and disk."""
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
        yield Check("state folder", "ok", _content(folder))
    yield check_disk("state disk", folder)


def _content(folder: Path) -> str:
    files = [path for path in folder.rglob("*") if path.is_file()]
    if not files:
        return f"{folder} is empty"
    found = [path.stat() for path in files]
    size, newest = sum(one.st_size for one in found), max(one.st_mtime for one in found)
    age = max(0.0, time.time() - newest)
    return f"{folder}, {len(files)} files, {_size(size)}, last written {age:.0f} s ago"


def _size(count: int) -> str:
    return f"{count / 2**20:.1f} MiB" if count < 2**30 else f"{count / 2**30:.1f} GiB"
