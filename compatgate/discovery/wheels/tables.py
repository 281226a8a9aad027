"""Represent the tables of a shared object, and the symbols that it needs from torch or defines.

libtorch and libc10 have no symbol versions. An extension that was built for another torch
needs a C++ symbol that the installed torch does not define, and its import fails.

On Windows the import table names the library that must define a symbol. Names of Microsoft's
compiler begin with ``?`` and name the innermost scope first, up to ``@@``.

Source: System V ABI ("Symbol Table"); Itanium C++ ABI ("Mangling"); Microsoft, "Decorated Names".
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Protocol

from msgspec import Struct

from compatgate.core.facts.records import TorchAbi

_TORCH = re.compile(rb"_Z(?:N[VK]{0,2}|T[VIS]N?|GV)(?:3c10|2at|5torch|6caffe2)")
_TORCH_C = re.compile(rb"(?:aoti_torch_|torch_(?:call|library|get|list|string|from|parallel))\w")
_OF_WINDOWS = re.compile(rb"\?.*@(?:c10|at|torch|caffe2)@@")
_OLD_STRING = re.compile(rb"[ERK]Ss(?![a-z])")
_WEAK = 2


class TorchSymbols(Struct, frozen=True):
    """C++ symbols of torch in one shared object.

    Attributes:
        abi: ABI in the form of a record; None where the object needs nothing from torch.
        asks: mangled undefined symbols that torch must define.
        defines: hashes of defined symbols; valid within one process.
    """

    abi: TorchAbi | None = None
    asks: frozenset[bytes] = frozenset()
    defines: frozenset[int] = frozenset()


NO_TORCH_SYMBOLS = TorchSymbols()


def torch_symbols(names: bytes, symbols: Iterable[tuple[bytes, bool, int]]) -> TorchSymbols:
    """Find torch's symbols in a library of Linux.

    Args:
        names: the whole table of names, for a quick test.
        symbols: name, whether it is undefined, and its binding.
    """
    if not _TORCH.search(names) and not _TORCH_C.search(names):
        return NO_TORCH_SYMBOLS
    undefined, asks, defines, stable = set(), set(), set(), False
    for name, missing, binding in symbols:
        if _TORCH.match(name):
            if not missing:
                defines.add(hash(name))
                continue
            undefined.add(name)
            if binding != _WEAK:
                asks.add(name)
        elif missing and _TORCH_C.match(name):
            stable = True
    return TorchSymbols(_abi(undefined, stable=stable), frozenset(asks), frozenset(defines))


def windows_symbols(imported: Iterable[bytes], exported: Iterable[bytes]) -> TorchSymbols:
    """Find torch's symbols in the tables of a Windows library.

    Args:
        imported: names that the library imports from torch.
        exported: names that the library defines.
    """
    asks, stable = set(), False
    for name in imported:
        if _OF_WINDOWS.match(name):
            asks.add(name)
        elif _TORCH_C.match(name):
            stable = True
    defines = frozenset(hash(name) for name in exported if _OF_WINDOWS.match(name))
    return TorchSymbols(_abi(asks, stable=stable), frozenset(asks), defines)


def _abi(undefined: set[bytes], *, stable: bool) -> TorchAbi | None:
    found = sorted(undefined)
    if not found:
        return TorchAbi(stable=True) if stable else None
    cxx11 = None
    if any(b"__cxx11" in name or b"B5cxx11" in name for name in found):
        cxx11 = True
    elif any(_OLD_STRING.search(name) for name in found):
        cxx11 = False
    digest = hashlib.sha256(b"\n".join(found)).hexdigest()[:16]
    return TorchAbi(cxx11=cxx11, symbols=len(found), digest=digest)


LARGEST_TABLES = 64 * 1024 * 1024
"""Largest size in bytes of one ELF file's tables."""
LARGEST_PE_TABLES = 40 * 1024 * 1024
"""Largest size in bytes of one PE file's tables, which are kept in one piece."""
VERSIONED_SYMBOL = re.compile(rb"_{0,2}nv[A-Za-z]{3,60}_(\d{1,2}_\d{1,2})")
"""Pattern for symbols with a version in their name: ``__nvJitLinkCreate_12_4``."""


class LibraryTables(Struct):
    """The dynamic tables of an ELF file, or the import and export tables of a PE file.

    Attributes:
        complete: all tables could be read.
    """

    soname: str | None = None
    needed: tuple[str, ...] = ()
    symbols: dict[str, tuple[str, ...]] = {}
    defines: tuple[str, ...] = ()
    torch: TorchSymbols = NO_TORCH_SYMBOLS
    complete: bool = True


class TableBytes(Protocol):
    """The bytes of an open file, or of a stream that has passed.

    Attributes:
        size: size of the file in bytes.
    """

    size: int

    def kept(self, offset: int, count: int, /) -> bytes:
        """Return kept bytes; fewer at the end of the file or of a kept part."""

    def again(self, offset: int, count: int, /) -> bytes:
        """Return bytes, ``b""`` where they are not available."""

    def fetch_all(self, ranges: Sequence[tuple[int, int]], /) -> None:
        """Keep these bytes too."""


def ordered_versions(versions: Iterable[str]) -> tuple[str, ...]:
    """Return versions of symbols in order, ``12_4`` before ``12_10``."""
    return tuple(sorted(versions, key=lambda text: tuple(map(int, text.split("_")))))
