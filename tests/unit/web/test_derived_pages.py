"""A route that names an item of the navigation has a page: a table, or the members of an object."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from flask.testing import FlaskClient
from msgspec.structs import replace

from compatgate.service.app import Rooms
from compatgate.web import app
from compatgate.web.routes import PAGES, ROUTES, derive_pages

COLUMNS = ("name", "scopes", "created_at", "expires_at")


@pytest.fixture
def site(
    rooms: Rooms, make_client: Callable[..., FlaskClient], monkeypatch: pytest.MonkeyPatch
) -> FlaskClient:
    """The pages that the lists of tokens and the show of a run would have."""
    routes = {route.name: route for route in ROUTES}
    derived = derive_pages(
        [
            replace(routes["list_tokens"], path="/key-cards", columns=COLUMNS, nav="tokens"),
            replace(routes["show_target"], path="/key-cards/{name}", nav="tokens"),
        ]
    )
    monkeypatch.setattr(app, "PAGES", (*PAGES, *derived))
    rooms.tokens.create("ci", ["read", "gate"], by="test")
    return make_client(anonymous=frozenset({"admin"}))


def test_a_list_is_a_table_whose_first_column_leads_to_the_object(site: FlaskClient) -> None:
    page = site.get("/ui/key-cards").text
    assert "Key cards" in page
    assert '<a href="/ui/key-cards/ci">ci</a>' in page
    assert "gate, read" in page


def test_a_list_is_exported(site: FlaskClient) -> None:
    head, row = site.get("/ui/key-cards?format=csv").text.splitlines()
    assert head == "Name,Scopes,Created at,Expires at"
    assert row.startswith('ci,"gate, read",20')


def test_an_object_shows_its_members(site: FlaskClient) -> None:
    page = site.get("/ui/key-cards/prod-a100").text
    assert "<dt>revision</dt>" in page
    assert site.get("/ui/key-cards/nobody").status_code == 404
