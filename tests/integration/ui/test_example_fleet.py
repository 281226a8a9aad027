"""The first visit: an example fleet that one click removes, and a tour."""

from __future__ import annotations

import re

import pytest
from compatgate.service.preferences.tour import STEPS, find_place
from ui_marks import post

from compatgate.documents.sources import Source
from compatgate.service.gate.service import Gate
from compatgate.service.home.examples import OWNER
from compatgate.service.matrix.service import Authorship
from compatgate.service.web.app import create_app
from compatgate.service.web.call import Settings

BY = Authorship("mara", "ours")
OURS = """
apiVersion: compatgate.dev/v1
kind: Target
metadata: {name: ours}
spec: {pools: [{name: one, gpu: L4, driver: "580.95.05"}], policy: {mode: warn}}
"""
USES = """
apiVersion: compatgate.dev/v1
kind: Entry
metadata: {name: mine}
spec: {targets: [prod-a100], components: {cuda: "12.4.*"}, status: candidate, reason: ours}
"""


@pytest.fixture
def client(gate: Gate):
    """A browser of somebody who may bless, on an empty gate."""
    made = create_app(gate, Settings(frozenset({"read"}))).test_client()
    secret = gate.tokens.create("ann", ["bless", "read", "operate"], by="t").secret
    post(made, "sign-in", token=secret)
    return made


def documents(gate: Gate) -> set[str]:
    found = gate.snapshot()
    return {*found.documents, *found.entries}


def clusters(gate: Gate) -> set[str]:
    return {node.row.cluster for node in gate.nodes.list().items}


def test_an_empty_gate_offers_the_example_to_who_may_bless(gate, client):
    assert "Load the example fleet" in client.get("/ui/").text
    reader = create_app(gate, Settings(frozenset({"read"}))).test_client()
    text = reader.get("/ui/").text
    assert "Load the example fleet" not in text
    assert "with the scope bless" in text


def test_one_click_loads_it_and_one_removes_exactly_that(gate, client):
    assert post(client, "example-fleet/load").status_code == 303
    assert "prod-a100" in documents(gate)
    assert clusters(gate) == {OWNER}
    assert "1 of 4 nodes reports driver 550.54.15" in client.get("/ui/").text
    gate.matrix.import_documents([Source("ours.yaml", OURS)], BY)
    answer = post(client, "example-fleet/remove")
    assert answer.status_code == 303
    assert documents(gate) == {"ours"}
    assert clusters(gate) == set()
    text = client.get("/ui/").text
    assert "Removed the example fleet: " in text
    assert "holds the example fleet" not in text


def test_what_is_ours_and_names_an_example_target_stops_the_removal(gate, client):
    post(client, "example-fleet/load")
    gate.matrix.import_documents([Source("mine.yaml", USES)], BY)
    answer = post(client, "example-fleet/remove")
    assert answer.status_code == 409
    assert "Entry mine" in answer.text
    assert {"prod-a100", "mine"} <= documents(gate)
    assert clusters(gate) == {OWNER}


def test_it_is_loaded_only_into_an_empty_gate(gate, client):
    gate.matrix.import_documents([Source("ours.yaml", OURS)], BY)
    assert "Load the example fleet" not in client.get("/ui/").text
    answer = post(client, "example-fleet/load")
    assert answer.status_code == 409
    assert documents(gate) == {"ours"}


def test_the_tour_goes_from_page_to_page_and_ends_for_good(client):
    assert "Take the tour" in client.get("/ui/").text
    step, titles = "1", []
    while step:
        place = post(client, "tour", step=step).location
        text = client.get(place).text
        titles.append(re.search(r'class="tour".*?<strong>([^<]*)</strong>', text, re.S)[1])
        following = re.search(r'name="step" value="(\d)">Next', text)
        step = following[1] if following else ""
    assert titles == [one.title for one in STEPS if one.scope == "read"]
    assert post(client, "tour", step="-1", next="/ui/decisions").location == "/ui/decisions"
    assert 'class="tour"' not in client.get("/ui/").text
    assert post(client, "tour", step="9").status_code == 400


def test_the_tour_stays_on_its_page_and_home_leads_back_to_it():
    may = ["read", "gate"]
    assert find_place(3, "ask", "/ask", may).step is STEPS[2]
    assert find_place(3, "matrix", "/matrix", may) is None
    assert find_place(3, "home", "/", may).after == (3, STEPS[2].title)
    assert find_place(0, "home", "/", []) is None
    assert find_place(2, "matrix", "/matrix", ["read"]).after == (4, STEPS[3].title)
