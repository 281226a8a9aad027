"""Hostile values, and where a body may have them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

from compatgate.kit.http.route import MAX_REQUEST_SIZE

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
ROOM = MAX_REQUEST_SIZE - 64 * 1024
"""Bytes for one hostile value, so that the rest of a body fits."""
HEAD_ROOM = 60_000
"""Bytes of a query; the head of a request is limited."""


class Attack(NamedTuple):
    """A request.

    Attributes:
        name: ``POST /gate pool.gpu: stars``.
        headers: besides the token and the content type.
    """

    name: str
    method: str
    path: str
    body: bytes = b""
    media: str = JSON
    headers: dict[str, str] = {}


def _nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


VALUES: dict[str, Callable[[], Any]] = {
    "a long text": lambda: "a" * ROOM,
    "digits": lambda: "9" * ROOM,
    "a long version": lambda: "1." * (ROOM // 2) + "1",
    "a version of zeros": lambda: "0" * (ROOM // 2) + ".1" * (ROOM // 4),
    "stars": lambda: "*a" * (ROOM // 2),
    "a few stars": lambda: "*a" * 120,
    "blanks": lambda: " " * ROOM,
    "commas": lambda: "," * ROOM,
    "unknown names": lambda: ",".join(f"n{n}=1" for n in range(ROOM // 10)),
    "conditions": lambda: ",".join(f">={n}" for n in range(ROOM // 8)),
    "alternatives": lambda: " ".join(f"cuda>={n}.1" for n in range(40_000)),
    "hyphens": lambda: "a-" * (ROOM // 2) + "!",
    "brackets": lambda: "[" * ROOM,
    "wide digits": lambda: "\uff11" * (ROOM // 4),
    "wide version": lambda: "\u0661.\u0662" * 60,
    "a short star text": lambda: "*" * 200 + "b",
    "lines": lambda: "torch==1\n" * (ROOM // 12),
    "a huge number": lambda: 10**300,
    "a float": lambda: 1e308,
    "many texts": lambda: [f"t{n}" for n in range(ROOM // 10)],
    "many versions": lambda: ["1.1.1.1"] * (ROOM // 12),
    "many objects": lambda: [{}] * (ROOM // 4),
    "many lists": lambda: [[]] * (ROOM // 4),
    "unknown keys": lambda: {f"n{n}": "1" for n in range(40_000)},
    "unknown null keys": lambda: {f"n{n}": None for n in range(40_000)},
    "nearly known keys": lambda: {f"cudn{n}": "1.0" for n in range(40_000)},
    "long keys": lambda: {f"{n}{'k' * 4000}": "1" for n in range(ROOM // 4100)},
    "deep": lambda: _nested(100_000),
    "nested to the limit": lambda: _nested(24),
    "null": lambda: None,
}  # fmt: skip


@cache
def encoded(name: str) -> bytes:
    """A hostile value as JSON."""
    if name == "deep":
        return b"[" * (ROOM // 2) + b"]" * (ROOM // 2)
    value = VALUES[name]()
    return b"1" + b"0" * 300 if name == "a huge number" else json.dumps(value).encode()


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every place of a body, but the whole."""
    if path:
        yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*path, key))
    elif isinstance(value, list) and value:
        yield from places(value[0], (*path, 0))


_MARK = "\ue000hostile\ue000"


def with_value(body: Any, place: tuple[str | int, ...], value: bytes) -> bytes:
    """A body with another value at a place."""
    copy = json.loads(json.dumps(body))
    inner = copy
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = _MARK
    return json.dumps(copy, ensure_ascii=False).encode().replace(f'"{_MARK}"'.encode(), value)
