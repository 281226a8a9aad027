"""Whether the torch that is installed beside an extension defines what the extension asks for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.facts.records import Library, Record
from compatgate.discovery.wheels.listed import base
from compatgate.discovery.wheels.torch_symbols import TorchSymbols

_NEEDED = (
    frozenset(("libc10.so", "libtorch_cpu.so", "libtorch_python.so")),
    frozenset(("c10.dll", "torch_cpu.dll", "torch_python.dll")),
)
"""Libraries without which nothing can be said, on Linux and Windows; a build for CUDA has more."""
_OF_TORCH = re.compile(r"lib(?:torch|c10|shm|caffe2)\w*\.so|(?:torch|c10|shm|caffe2)\w*\.dll")
_MOST_NAMED = 3
_LONGEST = 256


class File(Protocol):
    """A file of a package, as `compatgate.discovery.installed.File`."""

    @property
    def path(self) -> str:
        """Return the path below the root."""

    @property
    def library(self) -> Library | None:
        """Return what it holds."""

    @property
    def unread(self) -> bool:
        """Tell whether it could not be read."""

    @property
    def torch(self) -> TorchSymbols:
        """Return what it asks torch for."""


class Torch(Struct, frozen=True):
    """An installed torch.

    Attributes:
        root: folder that it is installed in.
        version: public.
        defines: hashes of its symbols.
    """

    root: str
    version: str
    defines: frozenset[int]


def torch_of(name: str, version: str, root: str, files: Sequence[File]) -> Torch | None:
    """Return a torch whose libraries were all read; None for other packages and otherwise."""
    own = [file for file in files if _OF_TORCH.fullmatch(base(file.path))]
    read = {base(file.path) for file in own if file.library and not file.unread}
    if name != "torch" or any(file.unread for file in own):
        return None
    if not any(read >= needed for needed in _NEEDED):
        return None
    defines: frozenset[int] = frozenset().union(*(file.torch.defines for file in own))
    return Torch(root, version.partition("+")[0], defines)


def with_torch(
    record: Record,
    files: Iterable[File],
    root: str,
    torches: Sequence[Torch],
    others: frozenset[int],
) -> Record:
    """Return a record with what its libraries ask for and the torch beside it does not define.

    Args:
        record: of the package.
        files: of the package.
        root: folder that the package is installed in.
        torches: installed ones; that of the same folder counts, otherwise the only one.
        others: hashes of the symbols that extensions define, for each other.
    """
    asked = frozenset[bytes]().union(*(file.torch.asks for file in files))
    beside = [torch for torch in torches if torch.root == root] or list(torches)
    if record.package == "torch" or not asked or len(beside) != 1:
        return record
    there = beside[0].defines
    missing = sorted(n for n in asked if hash(n) not in there and hash(n) not in others)
    named = tuple(name[:_LONGEST].decode("ascii", "replace") for name in missing[:_MOST_NAMED])
    return replace(record, torch_beside=beside[0].version, torch_missing=named)
