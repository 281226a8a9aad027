"""Pages lead on, and hold still while the list changes."""

from __future__ import annotations

import re
from typing import Any

import pytest
from flask.testing import FlaskClient

from compatgate.kit.principal import Authorship
from compatgate.service.app import Rooms

API = "/api/v1"
BY = Authorship("tester", "more")


def entry(name: str) -> dict[str, Any]:
    spec = {"targets": ["prod-a100"], "components": {"cuda": "12.4.*"}, "status": "candidate"}
    return {"metadata": {"name": name}, "spec": spec}


def follow(client: FlaskClient, path: str) -> list[list[Any]]:
    """The items of every page, by the Link header."""
    pages = []
    while path:
        answer = client.get(path)
        pages.append(answer.get_json()["items"])
        link = answer.headers.get("Link", "")
        assert bool(link) is (answer.get_json()["next"] is not None)
        path = re.sub(r'^<(.+)>; rel="next"$', r"\1", link)
    return pages


def test_the_link_header_leads_through_all_pages(client: FlaskClient, rooms: Rooms) -> None:
    for number in range(7):
        rooms.matrix.create("Entry", entry(f"e{number}"), BY)
    pages = follow(client, f"{API}/entries?limit=3")
    assert [len(page) for page in pages] == [3, 3, 2]
    names = [item["metadata"]["name"] for page in pages for item in page]
    assert names == [*(f"e{number}" for number in range(7)), "torch24-cu124"]


def test_items_added_meanwhile_shift_no_page(client: FlaskClient, rooms: Rooms) -> None:
    for name in "bdf":
        rooms.matrix.create("Entry", entry(name), BY)
    first = client.get(f"{API}/entries?limit=2").get_json()
    rooms.matrix.create("Entry", entry("a"), BY)
    rooms.matrix.delete("Entry", "b", BY)
    second = client.get(f"{API}/entries?limit=2&cursor={first['next']}").get_json()
    assert [i["metadata"]["name"] for i in second["items"]] == ["f", "torch24-cu124"]


def test_decisions_made_meanwhile_shift_no_page(client: FlaskClient) -> None:
    def ask() -> None:
        body = {"target": "prod-a100", "stack": {"cuda": "12.4"}}
        client.post(f"{API}/gate", json=body)

    for _ in range(4):
        ask()
    first = client.get(f"{API}/decisions?limit=2").get_json()
    ask()
    second = client.get(f"{API}/decisions?limit=2&cursor={first['next']}").get_json()
    assert [d["id"] for d in first["items"] + second["items"]] == [4000, 3000, 2000, 1000]


@pytest.mark.parametrize("path", ["rules?limit=7", "facts/gpus?limit=50", "audit?limit=1"])
def test_every_kind_of_list_has_pages_without_overlap(client: FlaskClient, path: str) -> None:
    pages = follow(client, f"{API}/{path}")
    items = [repr(item) for page in pages for item in page]
    assert len(pages) > 1
    assert len(set(items)) == len(items)


def test_decisions_are_filtered(client: FlaskClient) -> None:
    for stack in ({"cuda": "12.4"}, {"cuda": "12.1", "arch": ["sm_90"]}):
        client.post(f"{API}/gate", json={"target": "prod-a100", "stack": stack, "image": "r/a:1"})
    every = client.get(f"{API}/decisions").get_json()["items"]
    assert len(every) == 2
    one = every[0]
    for path, found in (
        ("target=prod-a100", 2),
        ("target=other", 0),
        (f"verdict={one['outcome']}&verdict_id={one['verdict_id']}", 1),
        ("source=rest", 2),
        ("source=cli", 0),
        ("asked_by=anonymous", 2),
        ("image=r%2Fa%3A1", 2),
        ("since=2020-01-01", 2),
        ("until=2020-01-01T00:00:00Z", 0),
    ):
        items = client.get(f"{API}/decisions?{path}").get_json()["items"]
        assert len(items) == found, path
    assert client.get(f"{API}/decisions/{one['id']}").get_json() == one


def test_the_audit_log_verifies_and_notices_another_head(client: FlaskClient) -> None:
    report = client.get(f"{API}/audit/verify").get_json()
    assert report["ok"] is True
    assert client.get(f"{API}/audit/verify?head={report['head']}").get_json()["ok"] is True
    assert client.get(f"{API}/audit/verify?head=0123").get_json()["ok"] is False
    links = client.get(f"{API}/audit?action=matrix.").get_json()["items"]
    assert [link["seq"] for link in links] == [3, 2, 1]
