"""Where documents come from: files, folders of them, standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from compatgate.errors import BadInput

SUFFIXES = (".yaml", ".yml", ".json")
LARGEST_FILE = 256 * 1024 * 1024
"""Bytes; 100,000 entries take some 30 MB."""


class Source(Struct, frozen=True):
    """Text and what to call it in messages."""

    file: str
    text: str


def read_paths(paths: Iterable[str | Path]) -> list[Source]:
    """Read files; a folder stands for every ``.yaml``, ``.yml`` and ``.json`` file below it.

    Args:
        paths: files and folders; ``-`` is standard input.

    Raises:
        BadInput: a path that does not exist, cannot be read, is too large or is not UTF-8; a folder
            without such files.
    """
    sources = [source for path in paths for source in _read(str(path))]
    seen: set[str] = set()
    return [s for s in sources if not (s.file in seen or seen.add(s.file))]  # type: ignore[func-returns-value]


def _read(path: str) -> list[Source]:
    if path == "-":
        return [Source("<stdin>", _decode("<stdin>", sys.stdin.buffer.read(LARGEST_FILE + 1)))]
    place = Path(path)
    if not place.is_dir():
        return [_file(place)]
    files = sorted(
        p
        for p in place.rglob("*")
        if p.suffix in SUFFIXES
        and p.is_file()
        and not any(part.startswith(".") for part in p.relative_to(place).parts)
    )
    if not files:
        raise BadInput(
            f"no documents below {path}", field="file", value=path, hint=" ".join(SUFFIXES)
        )
    return [_file(p) for p in files]


def _file(path: Path) -> Source:
    try:
        with path.open("rb") as stream:
            return Source(str(path), _decode(str(path), stream.read(LARGEST_FILE + 1)))
    except OSError as error:
        reason = error.strerror or str(error)
        raise BadInput(f"cannot read {path}: {reason}", field="file", value=str(path)) from None


def _decode(name: str, content: bytes) -> str:
    if len(content) > LARGEST_FILE:
        raise BadInput(f"{name} is larger than {LARGEST_FILE} bytes", field="file", value=name)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise BadInput(f"{name}:{line}: not UTF-8 text", field="file", value=name) from None
