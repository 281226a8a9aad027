"""The operators of NFD's expressions.

Source: kubernetes-sigs/node-feature-discovery ``docs/usage/customization-guide.md``, "Fields",
``matchExpressions``.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from compatgate.discovery.nfd.spec import Expression


def holds(asked: Expression, value: str) -> bool | None:
    """Whether a value that is there fits; None where that is not told."""
    if asked.op in ("In", "NotIn"):
        return (value in asked.value) == (asked.op == "In") if asked.value else None
    if asked.op in ("Exists", "DoesNotExist"):
        return asked.op == "Exists"
    if asked.op in ("IsTrue", "IsFalse"):
        return value == ("true" if asked.op == "IsTrue" else "false")
    return _compared(asked, value)


_BOUNDS: dict[str, tuple[Callable[[tuple[int, ...], tuple[int, ...]], bool], ...]] = {
    "Gt": (lambda a, b: a > b,),
    "Ge": (lambda a, b: a >= b,),
    "Lt": (lambda a, b: a < b,),
    "Le": (lambda a, b: a <= b,),
    "GtLt": (lambda a, b: a > b, lambda a, b: a < b),
    "GeLe": (lambda a, b: a >= b, lambda a, b: a <= b),
}


def _compared(asked: Expression, value: str) -> bool | None:
    """Whole numbers, or versions where the type says so; regular expressions are not read."""
    tests = _BOUNDS.get(asked.op)
    numbers = [_number(text, asked.type) for text in (value, *asked.value)]
    if tests is None or len(asked.value) != len(tests) or asked.type not in ("", "version"):
        return None
    here, *bounds = numbers
    if here is None:
        return None
    found = [None if b is None else test(here, b) for test, b in zip(tests, bounds, strict=True)]
    return None if None in found else all(found)


def _number(text: str, kind: str) -> tuple[int, ...] | None:
    form = r"\d{1,9}(\.\d{1,9}){0,2}" if kind == "version" else r"\d{1,18}"
    if not re.fullmatch(form, text, re.ASCII):
        return None
    return (*map(int, text.split(".")), 0, 0)[:3]


def shown(asked: Expression) -> str:
    """The expression in words, its first values."""
    values = ", ".join(asked.value[:4]) + (", ..." if len(asked.value) > 4 else "")
    return f"{asked.op} {values}".strip()
