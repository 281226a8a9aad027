"""Read single values of the fact files into the core's types."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from compatgate.core.facts.nvidia import Pair, Reference, Source
from compatgate.core.gpu_code import Arch, parse_arch
from compatgate.core.versions import Version, make_version, parse_version

Record = Mapping[str, Any]
_URL = re.compile(r"https?://[^\s,;)\]\"']+")
_HOST = re.compile(r"(?:^|[\s(])((?:github\.com|raw\.githubusercontent\.com)/[^\s,;)\]\"']+)")
_PULL = re.compile(r"\b([A-Za-z0-9][\w-]*/[\w.-]+) (?:PR|pull|issue) #?(\d+)")
_FILE = re.compile(
    r"(?<![\w./-])([A-Za-z0-9][\w-]*/[\w.-]+) "
    r"((?:[\w.-]+/)*[\w.-]+\.(?:md|rst|py|rs|go|lua|h|c|ya?ml|json|toml))\b"
)
"""``owner/repository path/to/file.md``, as the files name what a public repository holds."""
_BRANCH = re.compile(r"r?(\d{3})(?:\.x)?", re.IGNORECASE)


def source(*texts: Any, confidence: str | None = None) -> Source:
    """Build a source as rules show it: the first text with an address, then the others.

    Texts are values of the file, each a text, a list of texts or None; semicolons separate several
    sources in one text.
    """
    parts = (part for text in texts for part in _flatten(text))
    named = list(dict.fromkeys(one for part in parts for one in _references(part)))
    first = next((one for one in named if one.url), named[0] if named else Reference(""))
    others = tuple(one for one in named if one != first)
    return Source(first.title, first.url, confidence or "derived", others)


def record_source(record: Record) -> Source:
    """Return the source of a record, from its ``source`` and ``confidence``."""
    return source(record["source"], confidence=record["confidence"])


def inherit_source(part: Record, whole: Record) -> Record:
    """Return a part of a record; where it states no source, with that of the record."""
    if part.get("source"):
        return part
    return {**part, "source": whole["source"], "confidence": whole["confidence"]}


@lru_cache(maxsize=4096)  # thousands of records share a few hundred texts
def _references(text: str) -> tuple[Reference, ...]:
    return tuple(Reference(_title(one), _address(one)) for one in _clauses(text))


def _clauses(text: str) -> list[str]:
    """Split a text at semicolons, except within brackets or quotation marks."""
    clauses, depth, begin, quote = [], 0, 0, ""
    for at, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter == '"':
            quote = letter
        elif letter in "([":
            depth += 1
        elif letter in ")]":
            depth = max(0, depth - 1)
        elif letter == ";" and not depth:
            clauses.append(text[begin:at])
            begin = at + 1
    return [one.strip() for one in (*clauses, text[begin:]) if one.strip()]


def _flatten(text: Any) -> list[str]:
    if text is None:
        return []
    if isinstance(text, str):
        return [text]
    return [str(part) for part in text]


def _address(text: str) -> str | None:
    if match := _URL.search(text):
        return match[0].rstrip(".")
    if match := _HOST.search(text):
        return f"https://{match[1]}"
    if match := _PULL.search(text):
        return f"https://github.com/{match[1]}/pull/{match[2]}"
    if match := _FILE.search(text):
        return f"https://github.com/{match[1]}/blob/HEAD/{match[2]}"
    return None


def _title(text: str) -> str:
    title = _URL.sub("", text).removeprefix("docs: ")
    title = re.sub(r"\s+([;,)])", r"\1", re.sub(r"[\s,-]+;", ";", title))
    return re.sub(r"\s{2,}", " ", title).strip(" ,;-") or text.strip()


def pair(text: Any) -> Pair:
    """Read ``12.4``, ``12.4.1``, ``11.2 update 1`` or ``12.1u1`` as (major, minor)."""
    match = re.match(r"(\d+)\.(\d+)", str(text))
    if not match:
        raise ValueError(f"{text!r} is not a CUDA version or compute capability")
    return (int(match[1]), int(match[2]))


def pairs(texts: Iterable[Any] | None) -> tuple[Pair, ...]:
    """Read versions as (major, minor), ascending, without duplicates."""
    return tuple(sorted({pair(text) for text in texts or ()}))


def gpu_code(record: Record | Iterable[str]) -> tuple[Arch, ...]:
    """Read GPU code: names, or as a wheel states it (``sass`` and ``ptx`` as numbers)."""
    if not isinstance(record, Mapping):
        return tuple(arch for text in record for arch in parse_arch(text))
    named = (arch for text in record.get("specific") or () for arch in parse_arch(text))
    sass = (Arch("sass", capability) for capability in pairs(record["sass"]))
    return (*sass, *named, *(Arch("ptx", capability) for capability in pairs(record["ptx"])))


def driver(text: Any) -> Version:
    """Read a driver version; a branch alone (``580``, ``r450``) means any of its releases."""
    if match := _BRANCH.fullmatch(str(text)):
        return make_version(match[1], (int(match[1]),))
    return parse_version("driver", str(text).lower().removeprefix("r"))
