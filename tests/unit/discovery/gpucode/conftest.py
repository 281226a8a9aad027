"""Fatbinaries, ELF files and archives, made byte by byte."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from gpu_binaries import make_archive, make_elf, make_entry, make_fatbin


class Stream:
    """Bytes that can only be read, and how many were."""

    def __init__(self, data: bytes) -> None:
        self._file = io.BytesIO(data)
        self.taken = 0

    def read(self, size: int, /) -> bytes:
        data = self._file.read(size)
        self.taken += len(data)
        return data


@pytest.fixture(scope="session")
def entry() -> Callable[..., bytes]:
    """An entry: ``entry("ptx", 90, "a", isa=(8, 4))``."""
    return make_entry


@pytest.fixture(scope="session")
def fatbin() -> Callable[..., bytes]:
    """A fatbinary of entries."""
    return make_fatbin


@pytest.fixture(scope="session")
def elf() -> Callable[..., bytes]:
    """An ELF file of sections: ``elf(DOTnv_fatbin=...)``."""
    return make_elf


@pytest.fixture(scope="session")
def archive() -> Callable[..., bytes]:
    """A static library of members."""
    return make_archive


@pytest.fixture(scope="session")
def stream() -> Callable[[bytes], Stream]:
    """A file object that cannot seek."""
    return Stream
