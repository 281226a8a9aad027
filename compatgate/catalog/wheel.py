"""Compiling the whole catalog for a wheel; called by the build hook ``hatch_build.py``."""

from __future__ import annotations

import os

import msgspec

from compatgate.catalog import build, library, sources
from compatgate.catalog import compiled as form
from compatgate.catalog.compiled import Manifest
from compatgate.core.digest import sha256


def compile_all(directory: str) -> Manifest:
    """Write every table and the manifest into a directory; the same facts give the same bytes.

    Raises:
        CatalogError: a fact file does not have the shape that its adapter reads.
    """
    os.makedirs(directory, exist_ok=True)
    digests = {name: sources.file_digest(sources.source_path(name)) for name in sources.names()}
    tables = {name: _table(directory, name, digests) for name in table_names()}
    digest = library.catalog_digest(digests)
    manifest = Manifest(form.SCHEMA, digest, digests, tables)
    with open(os.path.join(directory, "manifest.msgpack"), "wb") as file:
        file.write(msgspec.msgpack.encode(manifest))
    return manifest


def table_names() -> list[str]:
    """Typed tables, and each fact file as it is."""
    names = sources.names()
    typed = [table for name in names for table in build.typed(name)]
    return [*typed, *(f"source/{name}" for name in names)]


def _table(directory: str, name: str, digests: dict[str, str]) -> str:
    source = build.table(name).source
    document = library.document(source)
    compiled = form.compile_table(name, document, {source: digests[source]}, code="wheel")
    data = msgspec.msgpack.encode(compiled)
    with open(os.path.join(directory, form.file_name(name)), "wb") as file:
        file.write(data)
    return sha256(data)
