"""Query parameters are read into the types that a route declares, or refused by name."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta, Struct
from werkzeug.datastructures import MultiDict

from compatgate.errors import BadInput
from compatgate.kit.http.requests import parse_query
from compatgate.kit.http.schemas import Since, Until


class Filters(Struct, frozen=True, forbid_unknown_fields=True, rename={"older": "from"}):
    limit: Annotated[int, Meta(ge=1, le=9)] = 5
    name: Annotated[str, Meta(min_length=1, max_length=5)] | None = None
    status: Literal["good", "bad"] | None = None
    allowed: bool | None = None
    day: date | None = None
    since: Since | None = None
    until: Until | None = None
    older: int | None = None


def read(**given_values: str) -> Filters:
    return parse_query(Filters, MultiDict(given_values))


def test_what_is_not_given_has_its_default() -> None:
    assert read() == Filters()


def test_values_get_their_type() -> None:
    found = read(limit="7", name="null", status="bad", allowed="false", day="2026-11-03")
    assert found == Filters(7, "null", "bad", False, date(2026, 11, 3))


def test_a_parameter_may_have_another_name_than_its_attribute() -> None:
    assert read(**{"from": "3"}).older == 3
    with pytest.raises(BadInput):
        read(older="3")


def test_a_day_begins_with_since_and_ends_with_until() -> None:
    found = read(since="2026-11-03", until="2026-11-03")
    assert found.since == datetime(2026, 11, 3, tzinfo=UTC)
    assert found.until == datetime(2026, 11, 3, 23, 59, 59, 999999, tzinfo=UTC)


def test_a_time_without_a_zone_is_utc() -> None:
    assert read(since="2026-11-03T10:00").since == datetime(2026, 11, 3, 10, tzinfo=UTC)
    zoned = read(since="2026-11-03T10:00:00+02:00").since
    assert zoned == datetime(2026, 11, 3, 8, tzinfo=UTC)


def test_choices_are_named_when_another_is_given() -> None:
    with pytest.raises(BadInput) as caught:
        read(status="ugly")
    assert (caught.value.field, caught.value.hint) == ("status", "one of good, bad")


def refusal(name: str, text: str) -> BadInput | None:
    try:
        read(**{name: text})
    except BadInput as error:
        return error
    return None


@given(
    st.sampled_from(["limit", "name", "status", "allowed", "day", "since", "until", "x"]), st.text()
)
def test_anything_else_is_bad_input_and_nothing_worse(name: str, text: str) -> None:
    error = refusal(name, text)
    assert error is None or error.field == name
