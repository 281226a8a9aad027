"""Package databases of distributions that are text: dpkg and apk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

LARGEST_LINE = 1024 * 1024
_PIECE = 64 * 1024


class Readable(Protocol):
    """Where bytes come from."""

    def read(self, size: int, /) -> bytes:
        """Up to ``size`` bytes; none at the end."""


def dpkg_packages(file: Readable) -> Iterator[tuple[str, str]]:
    """Names and versions of what dpkg has installed.

    Source: dpkg ``man/dpkg.pod`` (states: "want flag status"); distroless images have one file per
    package, without a ``Status``.
    """
    for fields in _paragraphs(file, (b"Package", b"Status", b"Version")):
        status = fields.get(b"Status", "install ok installed")
        if status.endswith(" installed") and b"Version" in fields and b"Package" in fields:
            yield fields[b"Package"], fields[b"Version"]


def apk_packages(file: Readable) -> Iterator[tuple[str, str]]:
    """Names and versions of what apk has installed (``P:`` and ``V:``).

    Source: Alpine wiki, "Apk spec", "Installed Database V2".
    """
    for fields in _paragraphs(file, (b"P", b"V")):
        if b"P" in fields and b"V" in fields:
            yield fields[b"P"], fields[b"V"]


def _paragraphs(file: Readable, keys: tuple[bytes, ...]) -> Iterator[dict[bytes, str]]:
    fields: dict[bytes, str] = {}
    for line in _lines(file):
        if not line.strip():
            if fields:
                yield fields
            fields = {}
        elif line[:1] not in b" \t":
            key, colon, value = line.partition(b":")
            if colon and key in keys:
                fields[key] = value.strip().decode("utf-8", "replace")[:256]
    if fields:
        yield fields


def _lines(file: Readable) -> Iterator[bytes]:
    """Lines; of one that is longer than any line is, the rest is dropped."""
    rest = b""
    while piece := file.read(_PIECE):
        *lines, rest = (rest + piece).split(b"\n")
        yield from lines
        rest = rest[:LARGEST_LINE]
    if rest:
        yield rest
