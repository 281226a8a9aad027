"""The header of an installed package, as every form of rpm's database holds it.

Source: rpm ``docs/manual/format_header.md`` (``u32 entries, u32 bytes``, entries of tag, type,
offset and count, then the data; big-endian).
"""

from __future__ import annotations

import struct

_NAME, _VERSION, _RELEASE = 1000, 1001, 1002
_STRING_TYPES = (6, 9)
_MOST_ENTRIES = 65536
_LONGEST = 256


def package(header: bytes) -> tuple[str, str] | None:
    """Name and version with release; None for a header that names no package.

    Raises:
        ValueError: the header is damaged.
    """
    if len(header) < 8:
        raise ValueError(f"a header of {len(header)} bytes is damaged")
    count, length = struct.unpack_from(">II", header)
    data = 8 + 16 * count
    if count > _MOST_ENTRIES or data + length > len(header):
        raise ValueError(f"a header of {len(header)} bytes is damaged")
    found: dict[int, str] = {}
    for tag, kind, offset, _ in struct.iter_unpack(">IIiI", header[8:data]):
        if tag in (_NAME, _VERSION, _RELEASE) and kind in _STRING_TYPES and 0 <= offset < length:
            start = data + offset
            text = header[start : start + _LONGEST].partition(b"\0")[0]
            found[tag] = text.decode("utf-8", "replace")
    if _NAME not in found or _VERSION not in found:
        return None
    return found[_NAME], f"{found[_VERSION]}-{found.get(_RELEASE, '')}".rstrip("-")
