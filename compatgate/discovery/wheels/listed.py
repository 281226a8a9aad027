"""Which libraries of a package its record lists, and how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from compatgate.core.facts.records import Library
from compatgate.discovery.wheels import families


def matters(library: Library) -> bool:
    """Tell whether a library has to do with GPUs: by its code, its links or its own name."""
    return is_tied(library) or any(families.of_gpus(name) for name in library.opens)


def is_tied(library: Library) -> bool:
    """Tell whether a library has GPU code or is linked against what has; opening is not enough."""
    named = (library.soname or base(library.path), *library.needs)
    return bool(
        library.carries_code
        or library.symbols
        or library.torch
        or any(families.of_gpus(name) for name in named)
    )


def linked_outside(shared: Sequence[Library], listed: Sequence[Library]) -> list[Library]:
    """Return the listed libraries without what they need of others that the package brings.

    Args:
        shared: every shared object of the package.
        listed: those that stand in its record.
    """
    paths = {library.path for library in listed}
    others = [library for library in shared if library.path not in paths]
    brought = {name for one in others for name in (one.soname, base(one.path)) if name}
    return [
        replace(library, needs=tuple(n for n in library.needs if n not in brought))
        for library in listed
    ]


def with_toolkits(libraries: Sequence[Library], toolkits: Mapping[str, str]) -> tuple[Library, ...]:
    """Return libraries with the toolkits of their PTX, which are facts and may be mended."""
    return tuple(
        replace(one, ptx_cuda=one.ptx_cuda or toolkits.get(one.ptx_isa or "")) for one in libraries
    )


def base(path: str) -> str:
    """Return the name of a file."""
    return path.rpartition("/")[2]
