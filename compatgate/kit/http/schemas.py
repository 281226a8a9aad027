"""Define the bodies that every route shares: a page of a list, and a problem.

The client imports this module; it needs neither Flask nor a database.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Generic, TypeVar

from msgspec import Meta, Struct

from compatgate.core.components import (
    MAX_ALTERNATIVES,
    MAX_ARCHITECTURES,
    MAX_KEYS,
    MAX_REMARKS,
    MAX_REQUIRE_LENGTH,
)

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
Text = Annotated[str, Meta(min_length=1)]
StackValue = str | int | bool | list[str] | dict[str, dict[str, Any] | str] | None
_STACK_VALUES = (
    "version as text; `arch` and `require` are lists; `needs` lists requirements on each GPU, "
    '`["fp8", "60GiB"]`; `disable-require` is true or false; '
    "`cuda-compat-use` is always, newer or tried; `open`, `conflicts` and `unread` are sentences; "
    "`wheels` has `file`, `sha256` and `index` by name; `measured` is the content of a package's "
    "files, as `inspect` prints it for images and folders; `unmeasured` says by release why a "
    "package has no record; `alternatives` are stacks by name that may run in place of this one: "
    "the worst counts. A version may state its GPU code: "
    "`2.8.3[sm_90]`"
)
_STACK_LIMITS = (
    f"`require` has at most {MAX_ALTERNATIVES} alternatives and {MAX_REQUIRE_LENGTH} characters in "
    f"total, `arch` {MAX_ARCHITECTURES} items, a list of sentences {MAX_REMARKS}"
)
StackBody = Annotated[
    dict[str, StackValue],
    Meta(
        min_length=1,
        max_length=MAX_KEYS,
        description=f"component or package of the index to {_STACK_VALUES}. {_STACK_LIMITS}",
        examples=[{"cuda": "12.4", "cudnn": "9.1.0", "arch": ["sm_80", "compute_90"]}],
    ),
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
