"""Read single values of the fact files into the core's types."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from msgspec import Struct

from compatgate.core.facts.nvidia import Pair, Reference, Source
from compatgate.core.gpu_code import Arch, parse_arch
from compatgate.core.versions import Version, make_version, parse_version

Record = Mapping[str, Any]
S = TypeVar("S", bound=Struct)
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

    Args:
        texts: values of the file, each a text, a list of texts or None; semicolons separate
            several sources in one text.
        confidence: ``published``, ``metadata`` or ``derived``.
    """
    clauses = [clause for text in texts for part in _flatten(text) for clause in _clauses(part)]
    found = list(dict.fromkeys(Reference(_title(one), _address(one)) for one in clauses))
    first = next((one for one in found if one.url), found[0] if found else Reference(""))
    others = tuple(one for one in found if one != first)
    return Source(first.title, first.url, confidence or "derived", others)


def record_source(record: Record) -> Source:
    """Return the source of a record, from its ``source`` and ``confidence``."""
    return source(record["source"], confidence=record["confidence"])


def fill(kind: type[S], record: Record, /, **made: Any) -> S:
    """Make a struct of what a record states under the names of its fields, lists as tuples.

    A null is as good as nothing for a field with a default. ``source`` is the record's own.

    Args:
        kind: of the struct.
        record: may have other members, too.
        made: the fields that are written in another form, or under another name.
    """
    fields = kind.__struct_fields__
    required = fields[: len(fields) - len(kind.__struct_defaults__)]
    if "source" in fields:
        made.setdefault("source", record_source(record))
    stated = {
        name: tuple(record[name]) if isinstance(record[name], list) else record[name]
        for name in fields
        if name not in made and name in record
    }
    known = {name: v for name, v in stated.items() if v is not None or name in required}
    return kind(**known, **made)


def _clauses(text: str) -> list[str]:
    """Split a text at semicolons, except within brackets or quotation marks."""
    found, depth, begin, quote = [], 0, 0, ""
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
            found.append(text[begin:at])
            begin = at + 1
    return [one.strip() for one in (*found, text[begin:]) if one.strip()]


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


def gpu_code(record: Record) -> tuple[Arch, ...]:
    """Read GPU code as a wheel states it: ``sass`` and ``ptx`` as numbers, ``specific`` by name."""
    named = (arch for text in record.get("specific") or () for arch in parse_arch(text))
    sass = (Arch("sass", capability) for capability in pairs(record["sass"]))
    return (*sass, *named, *(Arch("ptx", capability) for capability in pairs(record["ptx"])))


def driver(text: Any) -> Version:
    """Read a driver version; a branch alone (``580``, ``r450``) means any of its releases."""
    if match := _BRANCH.fullmatch(str(text)):
        return make_version(match[1], (int(match[1]),))
    return parse_version("driver", str(text).lower().removeprefix("r"))


def drivers(**texts: Any) -> dict[str, Version]:
    """Return the stated driver minimums per OS."""
    return {name.replace("_", "-"): driver(text) for name, text in texts.items() if text}


def version(component: str, text: Any) -> Version:
    """Read a version of a component, without its CUDA build label."""
    return parse_version(component, str(text))


def release_version(component: str, text: Any) -> Version:
    """Read a version, cut to the three parts that matter for compatibility."""
    parts = parse_version(component, str(text)).at(3)
    return make_version(".".join(map(str, parts)), parts)


def sort_releases(items: Iterable[Any]) -> tuple[Any, ...]:
    """Sort releases by version."""
    return tuple(sorted(items, key=lambda item: item.version.key))
