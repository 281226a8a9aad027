"""A stack that something shows beside one that somebody states."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from compatgate.core.stack import canonical_key, parse_stack
from compatgate.discovery.observed import Conflict
from compatgate.errors import CompatgateError

Body = dict[str, Any]


def with_remarks(stack: Mapping[str, Any], left: Iterable[str], said: Iterable[Conflict]) -> Body:
    """A stack in the form of requests, with what is open and where witnesses disagree.

    A version that cannot be read is left open.

    Args:
        stack: component to version as the witness writes it.
        left: what is open, in sentences.
        said: where witnesses disagree.
    """
    body: Body = {}
    sentences = list(left)
    for name, value in stack.items():
        try:
            parse_stack({name: value})
        except CompatgateError as error:
            sentences.append(f"{name}: {error.problem}")
        else:
            body[name] = value
    messages = [conflict.message for conflict in said]
    return {
        **body,
        **({"open": sentences} if sentences else {}),
        **({"conflicts": messages} if messages else {}),
    }


def shown_wins(shown: Body, stated: Mapping[str, Any], by: str) -> Body:
    """Both joined: what is shown wins, and a contradiction is a finding.

    Args:
        shown: of an image, with canonical names.
        stated: by a person or a file.
        by: what shows it, ``the image``.

    Raises:
        BadInput: a stated version is malformed; ``field`` names it.
    """
    stated = {canonical_key(name): value for name, value in stated.items()}
    conflicts = [*stated.get("conflicts", ()), *shown.get("conflicts", ())]
    left = [*stated.get("open", ()), *shown.get("open", ())]
    for name, value in stated.items():
        if name in shown and name not in ("open", "conflicts"):
            one, other = parse_stack({name: value}), parse_stack({name: shown[name]})
            if one != other:
                conflicts.append(f"{name}: stated is {value}, {by} shows {shown[name]}")
    return {
        **stated,
        **shown,
        **({"open": left} if left else {}),
        **({"conflicts": conflicts} if conflicts else {}),
    }
