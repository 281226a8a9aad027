"""What the tables of a shared object say, and the bytes that they are read from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Protocol

from msgspec import Struct

from compatgate.discovery.wheels.torch_symbols import NONE, TorchSymbols

LARGEST_TABLES = 64 * 1024 * 1024
"""Bytes of the tables that are read of one ELF file."""
LARGEST_PE_TABLES = 40 * 1024 * 1024
"""Bytes of the tables that are read of one PE file, which are kept in one piece."""
VERSIONED = re.compile(rb"_{0,2}nv[A-Za-z]{3,60}_(\d{1,2}_\d{1,2})")
"""Name of a symbol that holds its version: ``__nvJitLinkCreate_12_4``."""


class Tables(Struct):
    """What the dynamic tables of an ELF file, or the import and export tables of a PE file, say.

    Attributes:
        complete: all of them could be read.
    """

    soname: str | None = None
    needed: tuple[str, ...] = ()
    symbols: dict[str, tuple[str, ...]] = {}
    defines: tuple[str, ...] = ()
    torch: TorchSymbols = NONE
    complete: bool = True


class Bytes(Protocol):
    """Bytes of a file that has passed as a stream, or that is open.

    Attributes:
        size: of the file.
    """

    size: int

    def kept(self, offset: int, count: int, /) -> bytes:
        """Return bytes; fewer at the end of the file or of what was kept."""

    def again(self, offset: int, count: int, /) -> bytes:
        """Return bytes, nothing where they cannot be had."""

    def fetch_all(self, ranges: Sequence[tuple[int, int]], /) -> None:
        """Have these bytes kept as well."""


def ascending(versions: Iterable[str]) -> tuple[str, ...]:
    """Return versions of symbols in order, ``12_4`` before ``12_10``."""
    return tuple(sorted(versions, key=lambda text: tuple(map(int, text.split("_")))))
