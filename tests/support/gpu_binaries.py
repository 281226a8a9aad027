"""Fatbinaries, ELF files and archives, made byte by byte."""

from __future__ import annotations

import struct

_FLAGS = {"": 0, "a": 1 << 20, "f": 1 << 21}
_KINDS = {"ptx": 1, "sass": 2, "lto": 8}


def make_entry(
    kind: str = "sass",
    arch: int = 80,
    suffix: str = "",
    *,
    isa: tuple[int, int] = (8, 4),
    flags: int = 0,
    payload: bytes = b"\xaa" * 32,
    size: int | None = None,
    header: int = 64,
) -> bytes:
    major, minor = isa if kind == "ptx" else (1, 8)
    head = struct.pack(
        "<HHIQIIHHIIIQQQ",
        _KINDS.get(kind) or int(kind, 0),
        0x101,
        header,
        len(payload) if size is None else size,
        0,
        0,
        minor,
        major,
        arch,
        0,
        0,
        0x11 | flags | _FLAGS[suffix],
        0,
        0,
    )
    return head + payload


def make_fatbin(*entries: bytes, size: int | None = None, version: int = 1) -> bytes:
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, version, 16, len(body) if size is None else size) + body


def make_elf(machine: int = 62, **sections: bytes) -> bytes:
    """A 64-bit ELF file; ``_`` stands for the dot at the beginning of a section's name."""
    named = {n.replace("DOT", ".", 1): data for n, data in sections.items()}
    names = b"\0" + b"".join(n.encode() + b"\0" for n in [*named, ".shstrtab"])
    body, headers = b"", [bytes(64)]
    for name, data in [*named.items(), (".shstrtab", names)]:
        body += bytes(-len(body) % 8)
        headers.append(
            struct.pack(
                "<IIQQQQIIQQ",
                names.index(b"\0" + name.encode() + b"\0") + 1,
                3 if name == ".shstrtab" else 1,
                0,
                0,
                64 + len(body),
                len(data),
                0,
                0,
                8,
                0,
            )
        )
        body += data
    body += bytes(-len(body) % 8)
    head = struct.pack(
        "<16sHHIQQQIHHHHHH",
        b"\x7fELF\x02\x01\x01",
        3,
        machine,
        1,
        0,
        0,
        64 + len(body),
        0,
        64,
        56,
        0,
        64,
        len(headers),
        len(headers) - 1,
    )
    return head + body + b"".join(headers)


def make_archive(**members: bytes) -> bytes:
    data = b"!<arch>\n"
    for name, content in members.items():
        data += f"{name + '.o/':<16}{0:<12}{0:<6}{0:<6}{644:<8}{len(content):<10}`\n".encode()
        data += content + b"\n" * (len(content) % 2)
    return data
