"""Pages write numbers in one form, and a noun after a number agrees with it.

Pages write every time in one form: ``2026-11-03 09:30:12 UTC``, and a day as ``2026-11-03``.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, timezone

import pytest

from compatgate.kit import clock
from compatgate.kit.ui.filters import FILTERS
from compatgate.resources import package_dir

PLURAL_AFTER_A_LENGTH = re.compile(r"\| length \}\} (?:nodes|runs|entries|rules|workloads|pairs)\b")


@pytest.mark.parametrize(
    ("number", "thing", "said"),
    [
        (0, "node", "0 nodes"),
        (1, "node", "1 node"),
        (2000, "node", "2,000 nodes"),
        (1, "entry", "1 entry"),
        (3, "entry", "3 entries"),
    ],
)
def test_a_noun_agrees_with_its_number(number, thing, said):
    assert FILTERS["counted"](number, thing) == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("did you mean torch?", "Did you mean torch?"),
        ("driver 535.183.01 is too old", "Driver 535.183.01 is too old"),
        ("torch 2.9.0 needs CUDA 13", "torch 2.9.0 needs CUDA 13"),
        ("xformers is not known", "xformers is not known"),
        ("auto, light, dark", "auto, light, dark"),
        ("prod-a100 has no pool", "prod-a100 has no pool"),
        ("'troch' is not a component", "'troch' is not a component"),
        ("cuDNN 9 is newer", "cuDNN 9 is newer"),
        ("", ""),
    ],
)
def test_a_sentence_begins_with_a_capital_unless_it_begins_with_a_name(text, said):
    assert FILTERS["begin"](text, "driver" if "535" in text else "xformers") == said


@pytest.mark.parametrize(
    ("number", "things", "said"),
    [
        (2000, "targets", "2,000 targets"),
        (1, "targets", "1 target"),
        (1, "entries", "1 entry"),
        (1, "driver branches", "1 driver branch"),
        (1, "causes", "1 cause"),
        (1, "pairs of entry and pool", "1 pair of entry and pool"),
    ],
)
def test_a_list_of_one_row_has_a_singular(number, things, said):
    assert FILTERS["rows"](number, things) == said


def test_no_template_writes_a_plural_after_a_number_that_may_be_one():
    wrong = [
        path.name
        for path in package_dir().rglob("templates/*.html")
        if PLURAL_AFTER_A_LENGTH.search(path.read_text())
    ]
    assert wrong == []


MOMENT = datetime(2026, 11, 3, 9, 30, 12, 345, UTC)
FORMATTING = re.compile(r"strftime|isoformat|_at\[:\d+\]|until\[:\d+\]")
DATE_FIELD = 'value.strftime("%Y-%m-%d") if value else ""'
"""The value of a date field, whose form HTML sets."""


@pytest.mark.parametrize(
    "given",
    [
        MOMENT,
        MOMENT.astimezone(timezone(timedelta(hours=5))),
        clock.iso(MOMENT),
        MOMENT.timestamp(),
    ],
)
def test_a_time_has_one_form_whatever_it_comes_from(given):
    assert ">2026-11-03 09:30:12 UTC</time>" in FILTERS["when"](given)
    assert 'title="2026-11-03 09:30:12 UTC"' in FILTERS["ago"](given)
    assert FILTERS["day"](given) == "2026-11-03"


def test_a_day_stays_a_day():
    assert FILTERS["day"](date(2026, 11, 3)) == "2026-11-03"
    assert FILTERS["day"](None) == ""


def test_no_template_formats_a_time_by_itself():
    found = [
        f"{path.name}: {line.strip()[:80]}"
        for path in package_dir().glob("**/templates/*.html")
        for line in path.read_text().splitlines()
        if FORMATTING.search(line.replace(DATE_FIELD, ""))
    ]
    assert found == []
