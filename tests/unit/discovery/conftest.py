"""A shared library with GPU code, made byte by byte."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest


@pytest.fixture(scope="session")
def library() -> Callable[..., bytes]:
    """An ELF file with SASS for the architectures: ``library(80, 90)``."""

    def make(*archs: int) -> bytes:
        body = b"".join(
            struct.pack("<HHIQIIHHIIIQQQ", 2, 0x101, 64, 8, 0, 0, 8, 1, a, 0, 0, 0x11, 0, 0)
            + bytes(8)
            for a in archs
        )
        code = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body
        names = b"\0.nv_fatbin\0.shstrtab\0"
        names += bytes(-len(names) % 8)
        head = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 3, 62, 1, 0, 0,
            64 + len(code) + len(names), 0, 64, 56, 0, 64, 3, 2)  # fmt: skip
        section = struct.Struct("<IIQQQQIIQQ")
        table = bytes(64) + section.pack(1, 1, 0, 0, 64, len(code), 0, 0, 8, 0)
        table += section.pack(12, 3, 0, 0, 64 + len(code), len(names), 0, 0, 1, 0)
        return head + code + names + table

    return make
