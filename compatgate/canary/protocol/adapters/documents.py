"""JSON documents of a tool among other lines, and members of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from compatgate.canary.protocol.fields import Broken

_MOST = 10_000


def documents(text: str, first: str) -> Iterator[dict[str, Any]]:
    """The JSON objects that begin a line and whose first member is named so.

    Args:
        text: output of a tool.
        first: regular expression of the name.

    Raises:
        Broken: one is cut off or malformed.
    """
    begins = re.compile(rf'^[ \t]*(?=\{{\s*"(?:{first})"\s*:)', re.MULTILINE)
    decoder = json.JSONDecoder(parse_constant=_not_json)
    at, count = 0, 0
    while match := begins.search(text, at):
        count += 1
        if count > _MOST:
            raise Broken(f"more than {_MOST} documents")
        try:
            body, at = decoder.raw_decode(text, match.end())
        except RecursionError:
            raise Broken("the JSON document is nested too deeply") from None
        except ValueError as error:
            raise Broken(f"the JSON document is cut off or malformed: {error}") from None
        yield body


def member(body: dict[str, Any], name: str, kind: type, default: Any = None) -> Any:
    """A member of a type, or the default where it is missing or null.

    Raises:
        Broken: it is of another type.
    """
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
        raise Broken(f"{name} is not what it should be: {str(value)[:80]}")
    return value


def objects(body: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """A list of objects; ``null`` between them, as some versions print, is left out.

    Raises:
        Broken: it is missing, or holds something else.
    """
    values = member(body, name, list)
    if values is None:
        raise Broken(f"{name} is missing")
    kept = [value for value in values if value is not None]
    if not all(isinstance(value, dict) for value in kept):
        raise Broken(f"{name} holds something that is no object")
    return kept


def _not_json(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
