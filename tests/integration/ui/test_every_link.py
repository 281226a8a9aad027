"""The pages hang together: links lead somewhere, tables sort and export, fragments have a place."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterator
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, urldefrag, urljoin, urlsplit

import pytest
from flask.testing import FlaskClient
from ui_marks import Marks, pages, post
from ui_runs import QUEUED, SLOWER, Runs
from ui_site import fill, workloads_of

from compatgate.kit.principal import Authorship
from compatgate.service.app import Rooms, open_rooms
from compatgate.service.matrix.proposals.schemas import ProposalRequest, ProposedPool
from compatgate.web.app import create_app
from compatgate.web.service import Settings

_OF_A_KIND = 2
"""So many addresses of a page are looked at for each two filters that they have together."""
_BEGIN = (
    "/ui/",
    "/ui/sign-in",
    "/ui/find?q=torch+2.4+cu124",
    "/ui/no-such-page",
    f"/ui/runs/{QUEUED}/state",
    f"/ui/runs/{QUEUED}/log",
    f"/ui/runs/{SLOWER}/steps/conv-forward-0",
)
"""Home, and what only scripts, strangers and runs of many metrics get to."""


class Visit(NamedTuple):
    """A page that was looked at."""

    path: str
    status: int
    marks: Marks
    text: str
    places: frozenset[str]


class Site(NamedTuple):
    client: FlaskClient
    visits: list[Visit]
    endpoints: set[str]
    rooms: Rooms


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Everything that an administrator gets to by links, some of each kind."""
    folder: Path = tmp_path_factory.mktemp("crawled")
    database = f"sqlite:///{folder}/gate.db"
    fill(database)
    rooms = Runs(open_rooms(database, overlays=[]), workloads_of(database)).rooms
    edits = ProposalRequest(pools=[ProposedPool("prod-a100", {"driver": "580.95.05"})])
    rooms.proposals.propose(edits, Authorship("ann", "newer"))
    yield Site(*_walked(rooms, "admin", _OF_A_KIND), rooms)
    rooms.close()


def _walked(rooms: Rooms, scope: str, most: int) -> tuple[FlaskClient, list[Visit], set[str]]:
    app = create_app(rooms, Settings(anonymous=frozenset()))
    client = app.test_client()
    secret = rooms.tokens.create(f"walks-{scope}", [scope], by="tester").secret
    post(client, "sign-in", token=secret)
    adapter = app.url_map.bind("localhost")
    seen: Counter[tuple[str, tuple[str, ...]]] = Counter()
    visits: list[Visit] = []
    known, waiting = set(_BEGIN), deque(_BEGIN)
    while waiting:
        path = waiting.popleft()
        parts = urlsplit(path)
        endpoint = adapter.match(parts.path, "GET")[0]
        keys = sorted({key for key, _ in parse_qsl(parts.query)})
        kinds = [(endpoint, two) for two in combinations(["", *keys], 2)] or [(endpoint, ())]
        if all(seen[kind] >= most for kind in kinds):
            continue
        seen.update(kinds)
        answer = client.get(path, headers={"Accept": "text/html"})
        html = answer.text if answer.mimetype == "text/html" else ""
        marks = Marks(html)
        places = dict.fromkeys(_places(path, marks))
        visits.append(Visit(path, answer.status_code, marks, html, frozenset(places)))
        waiting.extend(place for place in places if place not in known)
        known.update(places)
    return client, visits, {endpoint for endpoint, _ in seen}


def _places(path: str, marks: Marks) -> Iterator[str]:
    for name in ("href", "src", "hx-get"):
        for value in marks.all(name):
            place = _place("" if value.startswith("/") else path, value)
            if place.startswith("/"):
                yield place


@cache
def _place(path: str, value: str) -> str:
    return urldefrag(urljoin(path, value))[0]


def test_every_link_leads_to_something(site):
    wrong = [(v.path, v.status) for v in site.visits if v.status >= 400]
    assert wrong == [("/ui/no-such-page", 404)]


def test_who_only_reads_is_shown_no_button_and_no_link_that_they_may_not_use(site):
    _, visits, _ = _walked(site.rooms, "read", 1)
    wrong = [(v.path, v.status) for v in visits if v.status >= 400]
    assert wrong == [("/ui/no-such-page", 404)]
    assert len(visits) > 40
    for visit in visits:
        sent = {a["action"] for tag, a in visit.marks.elements
                if tag == "form" and a.get("method") == "post"}  # fmt: skip
        own = {"/ui/theme", "/ui/preferences", "/ui/sign-out", "/ui/sign-in"}
        assert sent <= own, visit.path


WITH_AN_ISSUER = {"ui.begin_sign_in", "ui.finish_sign_in", "ui.show_signed_out"}
"""Pages of a gate whose people sign in at an issuer (``tests/integration/identity``)."""

MOVED = {"ui.show_plan"}
"""Addresses of earlier versions, which lead to a page's new address."""


def test_every_page_is_reached_by_links(site):
    all_of_them = {f"ui.{page.endpoint}" for page in pages("GET")}
    assert all_of_them - site.endpoints == WITH_AN_ISSUER | MOVED


def test_fragments_have_a_place(site):
    """What a part of a page is swapped for is there, on the page that asks."""
    for visit in site.visits:
        ids, classes = set(visit.marks.all("id")), _classes(visit.marks)
        wanted = visit.marks.all("hx-target") + visit.marks.all("hx-select")
        for selector in wanted:
            kind = selector.removeprefix("closest ").removeprefix("next ").partition(" ")[0]
            if kind == "#results":
                continue  # of the page of search
            there = ids if kind.startswith("#") else classes
            assert kind[1:] in there, (visit.path, selector)


def _classes(marks: Marks) -> set[str]:
    return {name for value in marks.all("class") for name in value.split()}


def test_no_id_is_given_twice(site):
    for visit in site.visits:
        twice = [name for name, count in Counter(visit.marks.all("id")).items() if count > 1]
        assert twice == [], visit.path


def test_links_within_a_page_lead_to_a_place_on_it(site):
    for visit in site.visits:
        ids = set(visit.marks.all("id"))
        inner = {value[1:] for value in visit.marks.all("href") if value.startswith("#")}
        assert inner - ids == set(), visit.path


def test_every_table_sorts_by_every_column_and_exports(site):
    sorts = {
        place
        for visit in site.visits
        for place in visit.places
        if "sort=" in place or "format=csv" in place
    }
    done: set[tuple[str, str, str | None]] = set()
    for place in sorted(sorts):
        parts = urlsplit(place)
        keys = dict(parse_qsl(parts.query))
        kind = (parts.path.split("/")[2], keys.get("sort", "").lstrip("-"), keys.get("format"))
        if kind in done:
            continue
        done.add(kind)
        if sort := keys.get("sort"):
            place = place.replace(f"sort={sort}", f"sort=-{sort.removeprefix('-')}")
        assert site.client.get(place).status_code == 200, place


def test_filters_that_are_left_empty_ask_for_nothing(site):
    """Without scripts a form sends all of its fields, whether filled or not."""
    asked: set[str] = set()
    for visit in site.visits:
        if 'class="filters"' not in visit.text:
            continue
        form = visit.text.partition('class="filters"')[2].partition("</form>")[0]
        names = re.findall(r'name="([a-z_]+)"', form)
        if "older" in names:
            continue  # of two revisions, which it asks for
        asked.add(f"{urlsplit(visit.path).path}?{'&'.join(f'{name}=' for name in names)}")
    assert len(asked) > 10
    for place in sorted(asked):
        assert site.client.get(place).status_code == 200, place


def test_there_are_tables_enough_to_be_sure(site):
    assert len({urlsplit(v.path).path for v in site.visits if 'aria-sort="' in v.text}) > 12
