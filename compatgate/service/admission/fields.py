"""Read untrusted documents: a value of an unexpected type counts as missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_NOTHING: dict[str, Any] = {}
EVERY = "*"


def mapping(value: Any) -> Mapping[str, Any]:
    """Return the value if it is a mapping, else an empty one."""
    return value if isinstance(value, dict) else _NOTHING


def items(value: Any) -> list[Any]:
    """Return the value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def text(value: Any) -> str:
    """Return the value if it is text, else empty text."""
    return value if isinstance(value, str) else ""


def texts(value: Any) -> dict[str, str]:
    """Return the text-to-text pairs of a mapping, such as labels and annotations."""
    return {key: item for key, item in mapping(value).items() if isinstance(item, str)}


def at(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield every value that a path matches, each with its own path.

    Args:
        value: document.
        path: ``spec.workers.*.template``; ``*`` is every item of a list or value of a mapping.
    """
    found: list[tuple[str, Any]] = [("", value)]
    for name in path.split("."):
        found = [step for where, here in found for step in _steps(where, here, name)]
    yield from found


def _steps(where: str, here: Any, name: str) -> Iterator[tuple[str, Any]]:
    if name != EVERY:
        if isinstance(here, dict) and name in here:
            yield _joined(where, name), here[name]
    elif isinstance(here, dict):
        for key, item in here.items():
            yield _joined(where, key), item
    elif isinstance(here, list):
        for number, item in enumerate(here):
            yield f"{where}[{number}]", item


def _joined(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def one_line(said: str, most: int) -> str:
    """Return text on one line, without control characters, truncated to ``most`` characters."""
    if not said.isprintable():
        said = "".join(c if c.isprintable() else " " for c in said)
    clean = " ".join(said.split())
    return clean if len(clean) <= most else f"{clean[: most - 3]}..."
