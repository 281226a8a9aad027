"""What holds for every page: readable by all, without errors, without scripts."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterator
from functools import cache
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from ui_axe import dark_violations, narrow_violations, violations
from ui_browser import PHONE
from ui_pictures import PICTURES, take_picture
from ui_runs import PASSED, QUEUED, SICK, SLOWER
from werkzeug.routing import Map, Rule

from compatgate.web.routes import PAGES as PAGES_OF_GATE

PAGES = [
    "",
    "matrix",
    "matrix?row=torch22-cu121&column=prod-a100",
    "matrix?rows=torch&columns=gpu",
    "find?q=torch",
    "ask",
    "ask?target=prod-a100&stack=cuda%3D12.4,cudnn%3D9.1.0,torch%3D2.4.1%2Bcu124&pick=cudnn",
    "triage",
    "what-if?target=prod-a100",
    "solve",
    "solve?target=prod-a100&want=torch",
    "solve?driver=535.183.01&gpu=V100-SXM2-16GB&want=torch%3E%3D2.15",
    "what-if?target=staging-h100&driver=525.60.13",
    "targets/prod-a100/plan?driver=580",
    "compare",
    "compare?target=prod-a100&left=torch24-cu124&right=cuda%3D12.1,torch%3D2.4.1%2Bcu121",
    "targets/prod-a100/report",
    "audit",
    "audit/verify",
    "facts",
    "facts/gpus?q=a100",
    "facts/gpus/A100-SXM4-80GB",
    "rules",
    "rules/CG202",
    "tokens",
    "targets",
    "targets/prod-a100",
    "targets/prod-a100/packages",
    "targets/prod-a100/edit",
    "entries",
    "entries/torch29-cu130",
    "entries/torch22-cu121",
    "waivers",
    "waivers/night-run",
    "waivers/night-run/edit",
    "new-waiver?rules=CG802&targets=prod-a100&components=torch+~%3D2.2.0",
    "new-entry",
    "proposals/new",
    "decisions",
    "revisions",
    "revisions/2",
    "revisions/diff?older=1&newer=4",
    "runs",
    f"runs/{SLOWER}",
    f"runs/{SLOWER}/steps/conv-forward-0",
    f"runs/{QUEUED}/state",
    f"runs/{SICK}",
    f"runs/{QUEUED}",
    f"runs/compare?a={PASSED}&b={SLOWER}",
    "runs/new",
    "baselines",
    "baselines/3",
    "hosts",
    "suites",
    "workloads",
    "workloads/gemm",
    "workloads/conv-forward",
    "workloads/conv-forward/history",
    "nodes?search=gpu-01",
    "nodes/gpu-017",
    "nodes/h100-01",
    "nodes/lab-01",
    "nodes/l4-01",
    "drift",
    "upgrades",
    "upgrades/prod-580",
    "new-upgrade?target=prod-a100&driver=580.95.05",
    "attention",
    "report",
    "incidents",
    "incidents/1",
    "new-target",
    "entries/torch29-cu130/edit?status=blessed",
    "import",
    "keys",
    "preferences",
    "facts/support-lines",
    "proposals",
    "proposals/{proposal}",
    "verdicts/{verdict}",
    "upgrades/prod-580/state",
    "sign-in",
    "sign-in/issuer",
    "sign-in/done",
    "signed-out",
    "no-such-page",
    "targets/prod-a1000",
    "verdicts/vd_mistyped",
    "entries?search=nothing",
    "matrix?q=driver<1",
    "matrix?rows=torch&columns=driver",
    "matrix?row=torch24-cu124&column=prod-a100",
    "matrix?rows=stack&stack=troch+2.7",
    "ask?target=prod-a100&stack=troch+2.7",
    "what-if?target=prod-a100&driver=nothing",
]
"""Paths below ``/ui/``, as an administrator sees them: each page, and what else it may show."""
HEAVIEST = 70_000
_ASSET = re.compile(r'(?:src|href)="(/ui/static/[^"]+)"')
NO_PAGES = {"/runs/<id>/log"}
"""What is no page: a text that is followed."""


OVERFLOW = """
() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() =>
    done(document.documentElement.scrollWidth - document.documentElement.clientWidth))))
"""
"""By how many pixels a page is too wide, once a frame of that size was shown: then lists fold."""


@pytest.fixture
def named(api) -> Iterator[Callable[[str], str]]:
    """Puts ids into a path: those of a denial, and of a proposal that is open for the test."""
    made: list[str] = []

    def name(path: str) -> str:
        if "{proposal}" in path:
            pool = {"target": "prod-a100", "set": {"driver": "580.95.05"}}
            made.append(api("POST", "proposals", {"pools": [pool], "reason": "newer"})["id"])
            return path.format(proposal=made[0])
        if "{verdict}" in path:
            denied = api("GET", "decisions?allowed=false&limit=1")["items"][0]
            return path.format(verdict=denied["verdict_id"])
        return path

    yield name
    for one in made:
        api("POST", f"proposals/{one}/close", {"comment": "over"})


def test_every_page_of_the_table_is_looked_at():
    known = [page.path for page in PAGES_OF_GATE if page.method == "GET"]
    rules = Map([Rule(f"/ui{path}", endpoint=path) for path in known])
    looked_at = {rules.bind("gate").match(f"/ui/{one.partition('?')[0]}")[0] for one in PAGES}
    assert set(known) - looked_at == NO_PAGES


def test_no_page_weighs_more_than_seventy_kilobytes(site, api, named):
    """As a browser with an empty cache transfers it, compressed, without headers."""

    def weigh(address: str) -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {site.admin}", "Accept-Encoding": "gzip"}
        try:
            with urlopen(Request(f"{site.url}{address}", headers=headers)) as answer:
                packed, coding = answer.read(), answer.headers.get("Content-Encoding")
        except HTTPError as error:
            packed, coding = error.read(), error.headers.get("Content-Encoding")
        text = gzip.decompress(packed) if coding == "gzip" else packed
        return len(packed), text.decode()

    weigh_asset = cache(lambda address: weigh(address)[0])
    heavy = {}
    for path in PAGES:
        own, text = weigh(f"/ui/{named(path)}")
        whole = own + sum(map(weigh_asset, set(_ASSET.findall(text))))
        if whole > HEAVIEST:
            heavy[path] = whole
    assert heavy == {}


@pytest.mark.parametrize("path", PAGES)
def test_it_is_accessible_in_light_and_dark_and_on_a_phone(look_at, named, path):
    page = look_at(named(path), signed_in=path != "sign-in")
    take_picture(page, PICTURES.get(path))
    assert violations(page) == [], "light"
    page.emulate_media(color_scheme="dark")
    assert dark_violations(page) == [], "dark"
    page.set_viewport_size(PHONE)
    page.wait_for_function("innerWidth === 390")
    assert page.evaluate(OVERFLOW) == 0
    assert narrow_violations(page) == [], "on a phone"


@pytest.mark.parametrize("path", [path for path in PAGES if "?" not in path])
def test_it_can_be_read_without_scripts(look_at, named, path):
    page = look_at(named(path), scripts=False, signed_in=path != "sign-in")
    assert page.locator("main h1").is_visible()
    assert page.locator("main").inner_text().strip()
