"""What a shared library calls itself and what it needs, from its dynamic section.

Source: System V ABI, "Dynamic Section" (``DT_NEEDED`` 1, ``DT_SONAME`` 14); ELF64 little-endian, as
on every platform that CUDA supports.
"""

from __future__ import annotations

import struct

from msgspec import Struct

from compatgate.discovery.gpucode.sections import MAGIC, Section, read_sections
from compatgate.discovery.gpucode.source import Source

_NEEDED, _SONAME = 1, 14
_LARGEST = 4 * 1024 * 1024
_LONGEST = 256


class Dynamic(Struct, frozen=True):
    """Names of libraries, as ``libcudart.so.12``."""

    soname: str | None = None
    needed: tuple[str, ...] = ()


def read_dynamic(source: Source) -> Dynamic:
    """Read the dynamic section of an ELF file that can seek; empty where there is none.

    Raises:
        BadInput: the ELF file is damaged.
    """
    head = source.peek(64)
    if head[:6] != MAGIC + b"\2\1" or source.size is None:
        return Dynamic()
    sections = {s.name: s for s in read_sections(source, 0, source.size) or ()}
    tags, names = _bytes(source, sections.get(".dynamic")), _bytes(source, sections.get(".dynstr"))
    soname, needed = None, []
    for tag, value in struct.iter_unpack("<QQ", tags[: len(tags) // 16 * 16]):
        if tag in (_NEEDED, _SONAME):
            name = names[value : value + _LONGEST].partition(b"\0")[0].decode("utf-8", "replace")
            if tag == _SONAME:
                soname = name
            else:
                needed.append(name)
    return Dynamic(soname, tuple(needed))


def _bytes(source: Source, section: Section | None) -> bytes:
    if section is None or section.start > (source.size or 0):
        return b""
    source.seek(section.start)
    return source.read(min(section.end - section.start, _LARGEST))
