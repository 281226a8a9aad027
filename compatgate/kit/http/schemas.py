"""Define the bodies that every route shares: a page of a list, and a problem.

The client imports this module; it needs neither Flask nor a database.
"""

from __future__ import annotations

from typing import Annotated, Any, Generic, TypeVar

from msgspec import Meta, Struct

T = TypeVar("T")


class Page(Struct, Generic[T], frozen=True, forbid_unknown_fields=True):
    """A page of a list."""

    items: list[T]
    next: Annotated[
        str | None, Meta(description="cursor of the next page; null: this is the last page")
    ]


class ProblemItem(Struct, frozen=True, forbid_unknown_fields=True):
    """One of several errors."""

    file: str | None
    line: int | None
    document: str | None
    field: str | None
    problem: str
    value: Any
    hint: str | None


class Problem(Struct, frozen=True, forbid_unknown_fields=True):
    """A problem: what is wrong, where, and what to do (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    field: Annotated[str | None, Meta(description="field with the problem")]
    value: Annotated[Any, Meta(description="value of the field, if it is a scalar")]
    hint: Annotated[str | None, Meta(description="expected value, or next step")]
    problems: list[ProblemItem] = []
