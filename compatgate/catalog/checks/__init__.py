"""What must hold within and between the fact files, beyond their schemas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct

from compatgate.core.facts import Facts


class Problem(Struct, frozen=True, order=True):
    """Something that does not hold.

    Attributes:
        check: which check says so, ``driver-order``.
        subject: what it is about, ``cuda_driver 12.4.1``.
        message: one sentence.
    """

    check: str
    subject: str
    message: str

    def __str__(self) -> str:
        return f"{self.check}: {self.subject}: {self.message}"


class Context(Struct, frozen=True):
    """What the checks look at: the tables as the rules see them, and the files as written."""

    facts: Facts
    documents: dict[str, dict[str, Any]]


Check = Callable[[Context], Iterator[Problem]]


def all_checks() -> tuple[Check, ...]:
    """Every check, in the order in which their problems are shown."""
    from compatgate.catalog.checks import (
        architectures,
        drivers,
        files,
        frameworks,
        issues,
        libraries,
        peaks,
        xid,
    )

    return (
        *files.CHECKS,
        *drivers.CHECKS,
        *architectures.CHECKS,
        *libraries.CHECKS,
        *frameworks.CHECKS,
        *issues.CHECKS,
        *xid.CHECKS,
        *peaks.CHECKS,
    )
