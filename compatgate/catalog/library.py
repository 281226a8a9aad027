"""Load tables from the wheel, the cache, or the fact files with overlays.

`compile_all` compiles the whole catalog for a wheel; the build hook ``hatch_build.py`` calls it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import msgspec

from compatgate import resources
from compatgate.catalog import build, sources
from compatgate.catalog import compiled as form
from compatgate.catalog.compiled import CompiledTable, Manifest
from compatgate.catalog.overlay import Overlay, merge_overlays
from compatgate.core.facts import Facts
from compatgate.core.performance import combine_digests, sha256
from compatgate.errors import BadInput, CompatgateError


class Library:
    """The catalog of one process; every table is read at most once. Of overlays, later ones win."""

    def __init__(self, overlays: Sequence[Overlay] = ()) -> None:
        self.overlays = tuple(overlays)
        self._wheel = None if sources.replacement_root() else resources.find_packaged("catalog")
        self._manifest = form.read_manifest(self._wheel) if self._wheel else None
        self._compiled: dict[str, CompiledTable] = {}
        self._digests: dict[str, str] = {}
        self._shipped: dict[str, str] = {}

    @property
    def digest(self) -> str:
        """Return the content digest of all facts, overlays included."""
        if self._manifest and not self.overlays:
            return self._manifest.digest
        if self._manifest is None and not self._shipped:
            self._shipped = form.file_digests(sources.paths())
            self._digests |= self._shipped
        shipped = self._manifest.sources if self._manifest else self._shipped
        return catalog_digest({**shipped, **_overlay_digests(self.overlays)})

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Return the names of all fact files without suffix, including those only in overlays."""
        return tuple(sorted({*sources.names(), *(overlay.target for overlay in self.overlays)}))

    @property
    def labels(self) -> tuple[str, ...]:
        """Return the names of the overlays, as verdicts show them."""
        return tuple(overlay.label for overlay in self.overlays)

    def facts(self) -> Facts:
        """Return all facts; each table is read on first use."""
        frameworks, recorded = (
            frozenset(n.removeprefix(folder) for n in self.names if n.startswith(folder))
            for folder in ("frameworks/", "packages/")
        )
        return Facts(self.load, self.digest, self.labels, frameworks, recorded)

    def load(self, name: str, kind: type[Any]) -> Any:
        """Return a table, decoded."""
        return form.decode(self.compiled(name), kind)

    def document(self, name: str) -> dict[str, Any]:
        """Return a fact file with every field and note, overlays applied."""
        whole: dict[str, Any] = self.load(f"source/{name}", dict[str, Any])
        return whole

    def check_overlays(self) -> None:
        """Compile every table that an overlay changes, so that its mistakes are reported now."""
        for target in {overlay.target for overlay in self.overlays}:
            for name in build.typed_tables(target) or [f"source/{target}"]:
                self.compiled(name)

    def compiled(self, name: str) -> CompiledTable:
        """Return a compiled table."""
        if name not in self._compiled:
            self._compiled[name] = self._find(name)
        return self._compiled[name]

    def _find(self, name: str) -> CompiledTable:
        source = build.table(name).source
        over = [o for o in self.overlays if o.target == source]
        if self._wheel and self._manifest and not over:
            return _read_packaged(self._wheel, self._manifest, name, self._digest(source))
        there = sources.is_shipped(source)
        if not there and not over:
            raise KeyError(name)
        digests = {**({source: self._digest(source)} if there else {}), **_overlay_digests(over)}
        found = form.find_cached(name, digests)
        if found is None:
            found = compile_source(name, over, digests)
            form.store_cached(found)
        return found

    def _digest(self, source: str) -> str:
        if source not in self._digests:
            self._digests[source] = sources.file_digest(sources.source_path(source))
        return self._digests[source]


def _overlay_digests(overlays: Sequence[Overlay]) -> dict[str, str]:
    """Return the digests of overlays; the order counts."""
    return {f"overlay {n} {o.label}": o.digest for n, o in enumerate(overlays)}


def catalog_digest(digests: dict[str, str]) -> str:
    """Return the digest that verdicts show."""
    return f"sha256:{combine_digests(digests)}"


def compile_source(
    name: str, overlays: Sequence[Overlay], digests: dict[str, str]
) -> CompiledTable:
    """Compile a table from its file, overlays applied."""
    whole = read_document(build.table(name).source, overlays)
    try:
        return form.compile_table(name, whole, digests, form.code_digest())
    except CompatgateError as error:
        if not overlays:
            raise
        field = f"{', '.join(overlay.path for overlay in overlays)}: {error.field}"
        raise BadInput(error.problem, field=field, value=error.value, hint=error.hint) from error


def read_document(source: str, overlays: Sequence[Overlay] = ()) -> dict[str, Any]:
    """Parse a fact file and apply overlays; an overlay may be a whole new file."""
    path = sources.source_path(source)
    new = bool(overlays) and not sources.is_shipped(source)
    shipped = {} if new else sources.parse(sources.read_bytes(path), path)
    return merge_overlays(source, shipped, overlays)


def _read_packaged(directory: str, manifest: Manifest, name: str, digest: str) -> CompiledTable:
    """Return a table of the wheel; the table and its source must be unmodified."""
    path = os.path.join(directory, form.file_name(name))
    source = build.table(name).source
    if manifest.sources.get(source) != digest:
        raise form.damaged_file_error(sources.source_path(source))
    if manifest.tables.get(name) != sources.file_digest(path):
        raise form.damaged_file_error(path)
    found = form.read(path)
    if found is None or found.sources != {source: digest} or found.table != name:
        raise form.damaged_file_error(path)
    return found


def compile_all(directory: str) -> Manifest:
    """Write every table and the manifest to a directory; equal facts give equal bytes."""
    os.makedirs(directory, exist_ok=True)
    digests = {name: sources.file_digest(sources.source_path(name)) for name in sources.names()}
    tables = dict.fromkeys(table_names(), "")
    for source in digests:
        document = read_document(source)  # takes longer than all that is made of it
        for name in (*build.typed_tables(source), f"source/{source}"):
            compiled = form.compile_table(name, document, {source: digests[source]}, code="wheel")
            data = msgspec.msgpack.encode(compiled)
            with open(os.path.join(directory, form.file_name(name)), "wb") as file:
                file.write(data)
            tables[name] = sha256(data)
    digest = catalog_digest(digests)
    manifest = Manifest(form.SCHEMA, digest, digests, tables)
    with open(os.path.join(directory, "manifest.msgpack"), "wb") as file:
        file.write(msgspec.msgpack.encode(manifest))
    return manifest


def table_names() -> list[str]:
    """Return the names of the typed tables and of the parsed fact files."""
    names = sources.names()
    typed = [table for name in names for table in build.typed_tables(name)]
    return [*typed, *(f"source/{name}" for name in names)]
