"""Map each table to its fact file and to the adapter that builds it.

Domain experts write fact files; an adapter turns each form of file into a table that rules read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from compatgate.catalog.sources import FOLDERS


class Table(NamedTuple):
    """The source of a table.

    Attributes:
        source: the fact file, without its ending.
        adapter: function in a module of this package, ``nvidia.gpus``; empty: the parsed file.
    """

    source: str
    adapter: str


TABLES: dict[str, Table] = {
    "cuda_driver": Table("cuda_driver", "nvidia.cuda_driver"),
    "driver_branches": Table("driver_branches", "nvidia.driver_branches"),
    "forward_compat": Table("forward_compat", "nvidia.forward_compat"),
    "gpus": Table("gpus", "nvidia.gpus"),
    "cuda_arch_support": Table("cuda_arch_support", "nvidia.cuda_arch"),
    "cudnn": Table("cudnn", "packages.cudnn"),
    "nccl": Table("nccl", "packages.nccl"),
    "known_issues": Table("known_issues", "framework.known_issues"),
    "cuda_components": Table("cuda_components", "packages.cuda_components"),
    "components": Table("components", "packages.components"),
    "compilers": Table("compilers", "tables.compilers"),
    "precision": Table("precision", "tables.precision"),
    "xid": Table("xid", "nvidia.xid"),
    "gpu_peaks": Table("gpu_peaks", "nvidia.gpu_peaks"),
    "vgpu": Table("vgpu", "vgpu.vgpu"),
    "vgpu_types": Table("vgpu", "vgpu.vgpu_types"),
    "platform_machines": Table("platform_machines", "platforms.platform_machines"),
    "error_signatures": Table("error_signatures", "tables.error_signatures"),
    "platforms": Table("platforms", "platforms.platforms"),
    "jetson": Table("jetson", "platforms.jetson"),
    "kernel_modules": Table("kernel_modules", "node.kernel_modules"),
    "node_components": Table("node_components", "node.node_components"),
    "kernel_support": Table("kernel_support", "node.kernel_support"),
    "glibc": Table("glibc", "node.glibc"),
}
"""Typed tables of single files. Each file of a folder also has a typed table, and every fact file
has a table ``source/NAME`` with its parsed content."""


def table(name: str) -> Table:
    """Return the entry of a table.

    Raises:
        KeyError: no table has this name.
    """
    kind, _, rest = name.partition("/")
    if kind == "source":
        return Table(rest, "")
    folder = next((folder for folder, form in FOLDERS.items() if form == kind), None)
    return Table(f"{folder}/{rest}", f"{kind}.{kind}") if folder and rest else TABLES[name]


def typed_tables(source: str) -> list[str]:
    """List the typed tables that are built from a fact file."""
    folder, _, rest = source.partition("/")
    if folder in FOLDERS:
        return [f"{FOLDERS[folder]}/{rest}"]
    return [name for name, table in TABLES.items() if table.source == source]


def names_in_folder(folder: str, names: Iterable[str]) -> frozenset[str]:
    """Return the components or packages that the fact files of a folder describe."""
    start = f"{folder}/"
    return frozenset(name.removeprefix(start) for name in names if name.startswith(start))


def adapt(name: str, document: dict[str, Any]) -> Any:
    """Build the table of this name from its parsed file."""
    adapter = table(name).adapter
    if not adapter:
        return document
    from importlib import import_module

    module, _, function_name = adapter.partition(".")
    function: Callable[[dict[str, Any]], Any] = getattr(
        import_module(f"{__name__}.{module}"), function_name
    )
    return function(document)
