"""Map each table to its fact file and to the module that decodes it.

Domain experts write fact files; a module says which struct each table is, and how its records
differ from the file's (`compatgate.catalog.build.decode`).
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

from compatgate.catalog.sources import FOLDERS, Step
from compatgate.errors import CompatgateError


class Misfit(Exception):
    """A value does not fit its field."""

    def __init__(self, error: CompatgateError, *path: Step) -> None:
        super().__init__(error)
        self.error = error
        self.path = list(path)


class Table(NamedTuple):
    """The source of a table."""

    source: str  # the fact file, without its ending
    module: str  # module of this package that decodes it; empty: the parsed file
    name: str = ""  # of the table in that module


_MODULES = {
    "nvidia": (
        "cuda_driver",
        "driver_branches",
        "forward_compat",
        "gpus",
        "cuda_arch_support",
        "xid",
        "gpu_peaks",
        "vgpu",
        "vgpu_types",
    ),
    "packages": ("cudnn", "nccl", "cuda_components", "components"),
    "framework": ("known_issues", "ngc_containers"),
    "tables": (
        "compilers",
        "precision",
        "error_signatures",
        "wheel_places",
        "platform_machines",
        "platforms",
        "jetson",
        "kernel_modules",
        "node_components",
        "kernel_support",
        "glibc",
    ),
}
_SOURCES = {"vgpu_types": "vgpu"}  # fact files of tables that are not named after them
TABLES: dict[str, Table] = {
    name: Table(_SOURCES.get(name, name), module, name)
    for module, names in _MODULES.items()
    for name in names
}
"""Typed tables of single files. Each file of a folder also has a typed table, and every fact file
has a table ``source/NAME`` with its parsed content."""


def table(name: str) -> Table:
    """Return the entry of a table."""
    kind, _, rest = name.partition("/")
    if kind == "source":
        return Table(rest, "")
    folder = next((folder for folder, form in FOLDERS.items() if form == kind), None)
    return Table(f"{folder}/{rest}", kind, kind) if folder and rest else TABLES[name]


def typed_tables(source: str) -> list[str]:
    """List the typed tables that are built from a fact file."""
    folder, _, rest = source.partition("/")
    if folder in FOLDERS:
        return [f"{FOLDERS[folder]}/{rest}"]
    return [name for name, table in TABLES.items() if table.source == source]


def adapt(name: str, document: dict[str, Any]) -> Any:
    """Decode the table of this name from its parsed file."""
    entry = table(name)
    if not entry.module:
        return document
    module = import_module(f"{__name__}.{entry.module}")
    return module.DECODER.read(module.TABLES[entry.name], document)
