"""Filters and the order of a table stay together in the address, with scripts and without."""

from __future__ import annotations

import re

import pytest

ORDER = '<input type="hidden" name="sort" value="{}" form="filters">'
FORM = re.compile(r'<form class="filters" id="filters".*?</form>', re.DOTALL)


@pytest.mark.parametrize(
    ("place", "asked", "column"),
    [
        ("targets", "gpu=L4", "nodes"),
        ("entries", "status=blessed", "status"),
        ("waivers", "search=x", "owner"),
        ("decisions", "allowed=yes", "target"),
        ("revisions", "kind=Entry", "author"),
        ("nodes", "stale=no", "driver"),
        ("drift", "what=driver", "node"),
        ("runs", "state=ended", "suite"),
        ("baselines", "state=approved", "metric"),
        ("audit", "action=matrix.", "actor"),
        ("facts/gpus", "q=L4", "name"),
    ],
)
def test_a_form_of_filters_keeps_the_order_and_a_heading_the_filters(pages, place, asked, column):
    page = pages().get(f"/ui/{place}?{asked}&sort=-{column}").text
    text = page.partition("<body>")[2]  # the styles before it name attributes
    assert text.count(ORDER.format(f"-{column}")) == 1
    assert FORM.search(text)
    assert ORDER.format("") not in text
    assert 'name="sort"' not in pages().get(f"/ui/{place}?{asked}").text
    name = asked.partition("=")[0]
    if 'aria-sort="descending"' in text:
        assert re.search(rf'href="/ui/{place}\?[^"]*{name}=[^"]*sort={column}', text)


def test_what_no_field_says_is_kept_as_well_and_a_page_is_not(pages):
    form = FORM.search(pages().get("/ui/runs?since=2026-01-02&state=ended&format=").text)
    assert form
    assert '<input type="hidden" name="since" value="2026-01-02">' in form[0]
    assert 'type="hidden" name="state"' not in form[0]
    first = pages().get("/ui/decisions?verdict_id=vd_0&sort=target&target=a%22b").text
    form = FORM.search(first)
    assert form
    assert '<input type="hidden" name="verdict_id" value="vd_0">' in form[0]
    assert "cursor" not in form[0]
