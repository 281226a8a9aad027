"""Define the bodies that every route shares: a page of a list, and a problem.

The client imports this module; it needs neither Flask nor a database.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Generic, TypeVar

from msgspec import Meta, Struct

T = TypeVar("T")
Limit = Annotated[int, Meta(ge=1, le=1000, description="number of items on a page")]
Cursor = Annotated[
    str, Meta(min_length=1, max_length=2000, description="`next` of the previous page; opaque")
]
Reason = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=2000,
        description="reason of the change; or use the header X-Compatgate-Reason",
    ),
]
Filter = Annotated[str, Meta(min_length=1, max_length=1000)]
Search = Annotated[str, Meta(max_length=200, description="part of the name, case-insensitive")]
END_OF_DAY = {"day": "end"}
Since = Annotated[datetime, Meta(description="at or after this time; a date means its start, UTC")]
Until = Annotated[
    datetime,
    Meta(description="at or before this time; a date means its end, UTC", extra=END_OF_DAY),
]


class ReasonQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Query parameters of a change without a body."""

    reason: (
        Annotated[str, Meta(description="reason; or use the header X-Compatgate-Reason")] | None
    ) = None


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


class ListQuery(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Query parameters of every list."""

    limit: Limit = 100
    cursor: Cursor | None = None

    def filters(self) -> dict[str, Any]:
        """Return the parameters as the gate's lists take them."""
        return {name: getattr(self, name) for name in self.__struct_fields__}
