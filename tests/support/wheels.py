"""Wheels and shared objects, made byte by byte."""

from __future__ import annotations

import base64
import hashlib
import io
import struct
import zipfile
from collections.abc import Mapping, Sequence

from gpu_binaries import make_elf

_METADATA = "Metadata-Version: 2.1\nName: {}\nVersion: {}\n{}\nText: not a header\n"


def make_wheel(
    members: Mapping[str, bytes],
    *,
    name: str = "pkg",
    version: str = "1.0",
    requires: Sequence[str] = (),
    python: str = ">=3.9",
    record: bool = True,
    stored: bool = False,
    level: int | None = None,
) -> bytes:
    """A wheel with these members, metadata and a RECORD.

    ``level`` of compression: 0 is quick for noise, in which nothing is found, 1 for zeros.
    """
    method = zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED
    lines = [f"Requires-Python: {python}", *(f"Requires-Dist: {text}" for text in requires)]
    metadata = _METADATA.format(name, version, "\n".join(lines) + "\n").encode()
    folder = f"{name.replace('-', '_')}-{version}.dist-info"
    files = {**members, f"{folder}/METADATA": metadata}
    if record:
        rows = [f"{path},sha256={_digest(data)},{len(data)}" for path, data in files.items()]
        files[f"{folder}/RECORD"] = "\n".join([*rows, f"{folder}/RECORD,,"]).encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method, compresslevel=level) as wheel:
        for path, data in files.items():
            wheel.writestr(path, data)
    return buffer.getvalue()


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def make_shared_object(
    *,
    soname: str = "",
    needs: Sequence[str] = (),
    undefined: Sequence[tuple[str, str]] = (),
    defined: Sequence[str] = (),
    code: bytes = b"",
    relocatable: bytes = b"",
    data: bytes = b"",
    front: bytes = b"",
    behind: bytes = b"",
) -> bytes:
    """An ELF file with a dynamic section and symbols.

    Args:
        undefined: symbols with the library whose version they ask for, ``""`` for none.
        front: bytes before, and ``behind`` bytes after the tables.
    """
    strings = b"\0"

    def text(value: str) -> int:
        nonlocal strings
        strings += value.encode() + b"\0"
        return len(strings) - 1 - len(value.encode())

    tags = [(1, text(name)) for name in needs] + ([(14, text(soname))] if soname else [])
    files = list(dict.fromkeys(file for _, file in undefined if file))
    symbols, versions = [bytes(24)], [0]
    for name, file in undefined:
        symbols.append(struct.pack("<IBBHQQ", text(name), 0x12, 0, 0, 0, 0))
        versions.append(2 + files.index(file) if file else 1)
    for name in defined:
        symbols.append(struct.pack("<IBBHQQ", text(name), 0x12, 0, 7, 64, 8))
        versions.append(1)
    needed = b""
    for number, file in enumerate(files):
        last = number == len(files) - 1
        place = text(file)
        needed += struct.pack("<HHIII", 1, 1, place, 16, 0 if last else 32)
        needed += struct.pack("<IHHII", 0, 0, 2 + number, place, 0)
    sections = {
        "DOTfront": front,
        "DOTdynsym": b"".join(symbols),
        "DOTdynstr": strings,
        "DOTgnu.version": struct.pack(f"<{len(versions)}H", *versions),
        "DOTgnu.version_r": needed,
        "DOTdynamic": b"".join(struct.pack("<QQ", *tag) for tag in [*tags, (0, 0)]),
        "DOTrodata": data,
        "DOTbehind": behind,
        "DOTnv_fatbin": code,
        "__nv_relfatbin": relocatable,
    }
    return make_elf(**{name: content for name, content in sections.items() if content})
