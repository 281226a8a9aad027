"""Query parameters into the struct that a route declares; what is unknown or twice is refused."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import Meta, Struct
from werkzeug.datastructures import MultiDict

from compatgate.documents.names import did_you_mean
from compatgate.errors import BadInput
from compatgate.store.clock import parse_moment

S = TypeVar("S", bound=Struct)
END_OF_DAY = {"day": "end"}
Since = Annotated[datetime, Meta(description="at or after this time; a date means its begin, UTC")]
Until = Annotated[
    datetime,
    Meta(description="at or before this time; a date means its end, UTC", extra=END_OF_DAY),
]


class Parameter(NamedTuple):
    """A query parameter.

    Attributes:
        attribute: of the struct.
        kind: type of the value, without None.
        is_time: a date or a time.
        ends_day: a date means the end of that day.
    """

    attribute: str
    kind: Any
    is_time: bool
    ends_day: bool


@lru_cache(maxsize=256)
def parameters(kind: type[Struct]) -> dict[str, Parameter]:
    """The query parameters that a struct declares, by the name that a URL has."""
    found = {}
    for field in msgspec.structs.fields(kind):
        given = _given(field.type)
        found[field.encode_name] = Parameter(field.name, given, _is_time(given), _ends_day(given))
    return found


def parse_query(kind: type[S], args: MultiDict[str, str]) -> S:
    """Read query parameters.

    Raises:
        BadInput: names the parameter, its value and what would be right.
    """
    known = parameters(kind)
    values: dict[str, Any] = {}
    for name, given in args.lists():
        if name not in known:
            hint = did_you_mean(name, known) if known else "this route takes none"
            raise BadInput("unknown query parameter", field=name, value=given[0], hint=hint)
        if len(given) > 1:
            raise BadInput("is stated twice", field=name, value=given[1], hint="give it once")
        values[known[name].attribute] = _read(name, given[0], known[name])
    return kind(**values)


def _read(name: str, text: str, parameter: Parameter) -> Any:
    if "\0" in text:
        raise BadInput("must not contain NUL", field=name, value=text)
    if parameter.is_time:
        return parse_moment(text, field=name, end_of_day=parameter.ends_day)
    try:
        return msgspec.convert(text, parameter.kind, strict=False)
    except msgspec.ValidationError as error:
        problem = f"{text[:80]!r} is not right here"
        hint = expected(parameter.kind, str(error))
        raise BadInput(problem, field=name, value=text, hint=hint) from None


def expected(kind: Any, message: str) -> str:
    """What a type wants: its choices where there are some, else what msgspec says of it."""
    choices = _choices(kind)
    if choices:
        return f"one of {', '.join(choices)}"
    return message.replace("`", "").replace("Expected", "expected").replace("Invalid", "invalid")


def _choices(kind: Any) -> list[str]:
    if get_origin(kind) is Literal:
        return [str(choice) for choice in get_args(kind)]
    return [choice for part in get_args(kind) for choice in _choices(part)]


def _given(kind: Any) -> Any:
    """The type of a parameter that is there: without None."""
    if get_origin(kind) not in (Union, UnionType):
        return kind
    return Union[tuple(part for part in get_args(kind) if part is not NoneType)]  # noqa: UP007


def _is_time(kind: Any) -> bool:
    return kind is datetime or datetime in get_args(kind)


def _ends_day(kind: Any) -> bool:
    return any(getattr(meta, "extra", None) == END_OF_DAY for meta in get_args(kind)[1:])
