"""The compact compiled form of a table: MessagePack, with the digests of what it was made from."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from compatgate.catalog import build, sources
from compatgate.errors import CatalogError, CompatgateError

SCHEMA = 1
"""Version of the compiled form; another one is not read."""


class Compiled(msgspec.Struct, frozen=True, array_like=True):
    """A compiled table.

    Attributes:
        schema: version of this form.
        table: name of the table.
        code: digest of the adapters that made it.
        sources: SHA-256 per source file, overlays included.
        payload: the table, encoded.
    """

    schema: int
    table: str
    code: str
    sources: dict[str, str]
    payload: bytes


class Manifest(msgspec.Struct, frozen=True):
    """What a wheel carries.

    Attributes:
        schema: version of the compiled form.
        digest: of the whole catalog, ``sha256:...``.
        sources: SHA-256 per source file.
        tables: SHA-256 per compiled table.
    """

    schema: int
    digest: str
    sources: dict[str, str]
    tables: dict[str, str]


def file_name(table: str) -> str:
    """File name of a compiled table."""
    return table.replace("/", "-") + ".msgpack"


def compile_table(
    name: str, document: dict[str, Any], digests: dict[str, str], code: str
) -> Compiled:
    """Adapt a parsed file and encode the table.

    Raises:
        CatalogError: the file does not have the shape that the adapter reads.
    """
    try:
        table = build.adapt(name, document)
    except CompatgateError as error:
        raise error.at(build.table(name).source) from error
    except (KeyError, TypeError, ValueError, AttributeError, StopIteration) as error:
        raise CatalogError(
            f"cannot be read into its table: {type(error).__name__} {error}",
            field=build.table(name).source,
            hint="compatgate facts verify names the place",
        ) from error
    return Compiled(SCHEMA, name, code, digests, msgspec.msgpack.encode(table))


def decode(compiled: Compiled, kind: type[Any]) -> Any:
    """The table itself."""
    return msgspec.msgpack.decode(compiled.payload, type=kind)


def write(directory: str, name: str, compiled: Compiled) -> None:
    """Write a compiled table so that nobody ever sees half of it.

    Raises:
        OSError: the directory cannot be written.
    """
    write_bytes(directory, name, msgspec.msgpack.encode(compiled))


def write_bytes(directory: str, name: str, data: bytes) -> None:
    """Write a file so that nobody ever sees half of it.

    Raises:
        OSError: the directory cannot be written.
    """
    os.makedirs(directory, exist_ok=True)
    temporary = os.path.join(directory, f".{name}.{os.getpid()}")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
        os.replace(temporary, os.path.join(directory, name))
    except OSError:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise


def read(path: str) -> Compiled | None:
    """A compiled table, None when there is none or it is not one."""
    try:
        with open(path, "rb") as file:
            compiled = msgspec.msgpack.decode(file.read(), type=Compiled)
    except (OSError, msgspec.MsgspecError):
        return None
    return compiled if compiled.schema == SCHEMA else None


def read_digests(path: str) -> dict[str, str] | None:
    """Read digests by name, None when there are none or the file is damaged."""
    try:
        with open(path, "rb") as file:
            return msgspec.msgpack.decode(file.read(), type=dict[str, str])
    except (OSError, msgspec.MsgspecError):
        return None


def read_manifest(directory: str) -> Manifest:
    """The manifest of a wheel.

    Raises:
        CatalogError: it is damaged.
    """
    path = os.path.join(directory, "manifest.msgpack")
    try:
        return msgspec.msgpack.decode(sources.read_bytes(path), type=Manifest)
    except msgspec.MsgspecError as error:
        raise damaged(path) from error


def damaged(path: str) -> CatalogError:
    """The error for a file of the wheel that is not as it was built."""
    return CatalogError(
        "does not belong to the facts that it was built from",
        field=path,
        value=path,
        hint="the installation was changed; reinstall compatgate",
    )
