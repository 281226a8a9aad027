"""From the fields that a deploy tool can carry to a question to the gate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compatgate.core.stack import parse_stack_text
from compatgate.documents.names import did_you_mean
from compatgate.errors import BadInput

KEYS = ("target", "pool", "stack", "image", "set")
_TEXTUAL = ("pool", "stack", "set")
"""May be written as text, ``cuda=12.4,torch=2.4.1``: many tools carry nothing else."""


def question_of(fields: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """The question, as ``POST /gate`` takes it; the gate itself validates what is in it.

    Args:
        fields: ``target`` or ``pool``, ``stack``, ``image``, ``set``; empty text is left out, so
            that a template may leave a variable empty.
        where: what the fields are called in errors, ``metadata``.

    Raises:
        BadInput: an unknown key, or neither a target nor a pool.
    """
    body: dict[str, Any] = {}
    for key, value in fields.items():
        path = f"{where}.{key}" if where else key
        if key not in KEYS:
            raise BadInput("unknown key", field=path, hint=did_you_mean(key, KEYS))
        if value is None or value == "":
            continue
        body[key] = _read(path, value) if key in _TEXTUAL and isinstance(value, str) else value
    if not ("target" in body or "pool" in body):
        path = f"{where}.target" if where else "target"
        raise BadInput("names no target", field=path, hint="the name of a target of the matrix")
    return body


def _read(path: str, text: str) -> dict[str, Any]:
    try:
        return parse_stack_text(text)
    except BadInput as error:
        raise error.at(path) from None
