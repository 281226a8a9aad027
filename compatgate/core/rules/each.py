"""Asking one thing of every framework of a stack."""

from __future__ import annotations

from collections.abc import Callable

from compatgate.core.case import Case
from compatgate.core.frameworks import Found
from compatgate.core.rules.base import NOT_APPLICABLE, PASS, Answer, Problem


def each(case: Case, check: Callable[[Case, Found], Answer]) -> Answer:
    """Ask about every framework of the stack; problems add up, a pass counts over silence."""
    problems: list[Problem] = []
    passed = False
    for found in case.frameworks:
        answer = check(case, found)
        if isinstance(answer, str):
            passed = passed or answer == PASS
        else:
            problems += answer
    return problems or (PASS if passed else NOT_APPLICABLE)
