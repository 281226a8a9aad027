"""Compile tables to MessagePack with the digests of their sources, and cache them for the user.

The wheel carries compiled tables; checkouts and overlays use the user's cache directory. A cached
table's file name is a digest of its sources and of the adapters: an entry never goes stale, and two
versions of compatgate do not disturb each other.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from compatgate.catalog import build, sources
from compatgate.catalog.sources import file_digest
from compatgate.core.performance import combine_digests
from compatgate.errors import CatalogError

T = TypeVar("T")
SCHEMA = 1  # version of the compiled format; other versions are not read
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_MAX_FORMS = 7  # cached versions per table, for other overlays and other versions of compatgate
_SETTLED_S = 2  # seconds after a change; by then a second change gets another timestamp
_CODE = (
    "catalog/build", "core/facts", "core/components.py", "core/constraints.py", "core/gpu_code.py",
    "core/gpus.py", "core/versions.py",
)  # fmt: skip


class CompiledTable(msgspec.Struct, frozen=True, array_like=True):
    """A compiled table."""

    schema: int
    table: str
    code: str  # digest of the adapters that built it
    sources: dict[str, str]  # SHA-256 per source file, overlays included
    payload: bytes


class Manifest(msgspec.Struct, frozen=True):
    """The list of compiled tables in a wheel."""

    schema: int
    digest: str  # of the whole catalog, ``sha256:...``
    sources: dict[str, str]  # SHA-256 per source file
    tables: dict[str, str]  # SHA-256 per compiled table


def file_name(table: str) -> str:
    """Return the file name of a compiled table."""
    return table.replace("/", "-") + ".msgpack"


def compile_table(
    name: str, document: dict[str, Any], digests: dict[str, str], code: str
) -> CompiledTable:
    """Decode the table of a parsed file, and encode it."""
    try:
        table = build.adapt(name, document)
    except build.Misfit as misfit:
        error, source = misfit.error, build.table(name).source
        schema = sources.read_schema(source)
        raise CatalogError(
            error.problem,
            field=f"{source}.{sources.natural_path(schema, misfit.path)}".rstrip("."),
            value=error.value,
            hint=error.hint or "run: compatgate facts verify",
        ) from error
    return CompiledTable(SCHEMA, name, code, digests, msgspec.msgpack.encode(table))


def decode(compiled: CompiledTable, kind: type[Any]) -> Any:
    """Decode the table."""
    return msgspec.msgpack.decode(compiled.payload, type=kind)


def _store(table: str, name: str, content: Any) -> bool:
    """Cache a version of a table; return False where the directory cannot be written."""
    folder = cache_directory()
    temporary = os.path.join(folder, f".{name}.{os.getpid()}")
    try:
        os.makedirs(folder, exist_ok=True)
        with open(temporary, "wb") as file:
            file.write(msgspec.msgpack.encode(content))
        os.replace(temporary, os.path.join(folder, name))
        _prune(table, name)
    except OSError:
        if os.path.exists(temporary):
            os.unlink(temporary)
        return False
    return True


def _read(path: str, kind: type[T]) -> T | None:
    """Read a file of the cache or the wheel; None when it is missing or unreadable."""
    try:
        with open(path, "rb") as file:
            return msgspec.msgpack.decode(file.read(), type=kind)
    except (OSError, msgspec.MsgspecError):
        return None


def read(path: str) -> CompiledTable | None:
    """Read a compiled table; None when the file is missing or unreadable."""
    compiled = _read(path, CompiledTable)
    return compiled if compiled and compiled.schema == SCHEMA else None


def read_manifest(directory: str) -> Manifest:
    """Read the manifest of a wheel."""
    path = os.path.join(directory, "manifest.msgpack")
    try:
        return msgspec.msgpack.decode(sources.read_bytes(path), type=Manifest)
    except msgspec.MsgspecError as error:
        raise damaged_file_error(path) from error


def damaged_file_error(path: str) -> CatalogError:
    """Return the error for a file of the wheel that was modified."""
    return CatalogError(
        "does not match the facts it was built from",
        field=path,
        value=path,
        hint="the installation was modified; reinstall compatgate",
    )


@lru_cache(maxsize=1)
def code_digest() -> str:
    """Return a digest of the code that builds tables, by file size and modification time."""
    stamps = {"schema": str(SCHEMA)}
    for name in _CODE:
        path = os.path.join(_PACKAGE, *name.split("/"))
        files = [os.path.join(path, n) for n in os.listdir(path)] if os.path.isdir(path) else [path]
        for file in (one for one in files if one.endswith(".py")):
            status = os.stat(file) if os.path.exists(file) else None
            stamps[file] = f"{status.st_size} {status.st_mtime_ns}" if status else "none"
    return combine_digests(stamps)


def cache_directory() -> str:
    """Return the folder of cached tables."""
    if sys.platform == "linux":  # as platformdirs would answer, without the time to import it
        base = os.environ.get("XDG_CACHE_HOME", "")
        if not os.path.isabs(base):
            base = os.path.join(os.path.expanduser("~"), ".cache")
        return os.path.join(base, "compatgate", "facts")
    from platformdirs import user_cache_dir

    return os.path.join(user_cache_dir("compatgate", appauthor=False), "facts")


def find_cached(table: str, digests: dict[str, str]) -> CompiledTable | None:
    """Return a cached table that exactly these sources and this code produced."""
    found = read(os.path.join(cache_directory(), _cached_name(table, digests)))
    if found is None or found.sources != digests or found.code != code_digest():
        return None
    return found if found.table == table else None


def store_cached(compiled: CompiledTable) -> bool:
    """Cache a table for other processes; return False where the directory cannot be written."""
    return _store(compiled.table, _cached_name(compiled.table, compiled.sources), compiled)


def _prune(table: str, newest: str) -> None:
    """Remove the oldest cached versions of a table."""
    prefix = file_name(table).removesuffix("msgpack")
    paths = [
        os.path.join(cache_directory(), name)
        for name in os.listdir(cache_directory())
        if name.startswith(prefix) and name != newest
    ]
    for path in sorted(paths, key=os.path.getmtime)[: -_MAX_FORMS or None]:
        os.unlink(path)


def file_digests(paths: Mapping[str, str]) -> dict[str, str]:
    """Return the SHA-256 of files by name; read a file only when it changed.

    As in version control, size, inode and both timestamps identify a version of a file. Files that
    changed within the last seconds are not cached: the next change may have the same timestamp.
    """
    try:
        status = {name: os.stat(path) for name, path in paths.items()}
    except OSError:  # reading names the file
        return {name: file_digest(path) for name, path in paths.items()}
    stamps = {
        name: f"{s.st_size} {s.st_ino} {s.st_mtime_ns} {s.st_ctime_ns}"
        for name, s in status.items()
    }
    file = file_name(f"digests.{combine_digests(stamps)[:32]}")
    found = _read(os.path.join(cache_directory(), file), dict[str, str])
    if found is not None and found.keys() == paths.keys():
        return found
    made = {name: file_digest(path) for name, path in paths.items()}
    newest = max((s.st_ctime for s in status.values()), default=0)
    if newest + _SETTLED_S < time.time():
        _store("digests", file, made)
    return made


def _cached_name(table: str, digests: dict[str, str]) -> str:
    key = combine_digests({"code": code_digest(), **digests})[:20]
    return file_name(f"{table}.{key}")
