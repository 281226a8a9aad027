"""Addresses of pages: their parameters are quoted, and each link starts from the page's own."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode, urlsplit

from flask import Flask
from hypothesis import given
from hypothesis import strategies as st

from compatgate.kit.http.links import current_page_link, encode_query

VALUES = st.one_of(st.none(), st.text(max_size=20), st.integers(), st.booleans())


@given(st.dictionaries(st.text(min_size=1, max_size=10), VALUES, max_size=5))
def test_parameters_are_encoded_as_the_standard_library_does(query: dict[str, object]) -> None:
    given_ = {key: value for key, value in query.items() if value not in (None, "")}
    assert encode_query(query) == (f"?{urlencode(given_)}" if given_ else "")


def test_each_link_of_a_page_starts_from_its_own_address() -> None:
    app = Flask("links")
    with app.test_request_context("/ui/matrix?q=torch+2.8&row=a%26b"):
        links = [current_page_link(row="c"), current_page_link(column="x y"), current_page_link()]
    found = [dict(parse_qsl(urlsplit(one).query)) for one in links]
    assert [urlsplit(one).path for one in links] == ["/ui/matrix"] * 3
    assert found == [
        {"q": "torch 2.8", "row": "c"},
        {"q": "torch 2.8", "row": "a&b", "column": "x y"},
        {"q": "torch 2.8", "row": "a&b"},
    ]
    with app.test_request_context("/ui/nodes?gpu=L4"):
        assert current_page_link(cursor="z") == "/ui/nodes?gpu=L4&cursor=z"
