"""Whatever others wrote is text on every page, and in every file that a page exports."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import pytest
from flask.testing import FlaskClient
from ui_hostile import LINE, TEXT, fill_hostile
from ui_marks import Marks, pages, place, post

from compatgate.service.app import Rooms
from compatgate.web.app import create_app
from compatgate.web.service import Settings

_SAYS_NOTHING = {
    "/",
    "/what-if",
    "/solve",
    "/proposals/new",
    "/targets/<name>/plan",
    "/triage",
    "/audit/verify",
    "/facts",
    "/facts/support-lines",
    "/preferences",
    "/rules",
    "/rules/<id>",
    "/tokens",
    "/suites",
    "/workloads",
    "/workloads/<name>",
    "/workloads/<name>/history",
    "/runs/<id>/log",
    "/sign-in",
    "/sign-in/issuer",
    "/sign-in/done",
    "/signed-out",
    "/find",
    "/keys",
    "/ask",
    "/runs/new",
    "/new-waiver",
    "/new-upgrade",
    "/new-target",
    "/new-entry",
    "/import",
    "/matrix",
    "/runs/compare",
    "/compare",
    "/waivers",
}
"""Pages that show nothing of it until something is asked of them (below), or are our own words."""


_COMPUTED = re.compile(r"(?<![0-9a-f])1337(?![0-9a-f])")
"""What templates in the hostile text would make of themselves; digests may hold the digits."""


class Hostile(NamedTuple):
    rooms: Rooms
    client: FlaskClient
    names: dict[str, str]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Hostile:
    folder: Path = tmp_path_factory.mktemp("hostile")
    rooms, names = fill_hostile(f"sqlite:///{folder}/gate.db", folder)
    overlays = (str(folder / "hostile.yaml"),)
    settings = Settings(anonymous=frozenset({"read", "gate", "plan"}), overlays=overlays)
    client = create_app(rooms, settings).test_client()
    secret = rooms.tokens.create("boss", ["admin"], by=LINE).secret
    post(client, "sign-in", token=secret)
    return Hostile(rooms, client, names)


def looked_at(hostile: Hostile, path: str) -> Marks:
    answer = hostile.client.get(path, headers={"Accept": "text/html"})
    assert answer.status_code < 500, path
    assert answer.mimetype == "text/html", path
    marks = Marks(answer.text)
    assert list(marks.active()) == [], path
    assert not _COMPUTED.search(marks.text), path
    assert "\u202e" not in answer.text, path
    return marks


@pytest.mark.parametrize("page", pages("GET"), ids=lambda page: page.path)
def test_hostile_text_is_text_on_every_page(hostile, page):
    path = place(page, hostile.names)
    if page.path == "/runs/<id>/log":
        assert hostile.client.get(path).mimetype == "application/json"
        return
    marks = looked_at(hostile, path)
    if page.path not in _SAYS_NOTHING:
        assert "hostile" in marks.text, path


QUERIES = (
    "matrix?row=told&column=prod",
    "matrix?q={}&stack={}&rows={}",
    "matrix?row={}&column={}",
    "ask?target=prod&stack=cuda%3D12.4&image={}&pick=cudnn",
    "ask?driver={}&gpu={}&stack={}&set={}&at={}",
    "ask?target={}&stack=%7B%22cuda%22:%22{}%22%7D",
    "what-if?target=prod&driver=580.95.05",
    "what-if?target={}&driver={}&gpu={}&cuda={}&pool={}",
    "solve?target={}&second={}&want={}&stack={}",
    "solve?driver={}&gpu={}&want={}&stack={}",
    "targets/prod/plan?driver=580&cuda={}&pool={}&set={}",
    "targets/prod/plan?driver=580",
    "find?q={}",
    "find?q=told",
    "new-entry?targets={}&components=torch+%3D%3D{}&gpus={}",
    "sign-in?next={}",
    "sign-in?next=javascript:hostile()",
    "sign-in?next=//hostile.example/ui/",
    "new-waiver?rules={}&targets={}&image={}&components={}",
    "runs/new?suite={}&target={}&stack={}&image={}&host={}&pool={}&entry={}&priority={}",
    "compare?target=prod&left={}&right={}",
    "compare?target={}&left=told&right=cuda%3D12.4",
    "runs/compare?a={}&b={}",
    "runs/compare?a={run}&b={run}",
    "runs?entry={}&asked_by={}",
    "baselines?metric={}&sku={}",
    "decisions?target={}&source={}&image={}",
    "decisions?verdict_id={}",
    "audit?action={}&actor={}",
    "revisions?author={}",
    "revisions/diff?older=0&newer=5",
    "entries?search={}",
    "waivers?owner={}&search={}",
    "targets?search={}",
    "facts/known_issues?q=hostile",
    "facts/{}",
    "facts/gpus/{}",
    "targets/{}",
    "entries/{}",
    "waivers/{}",
    "rules/{}",
    "runs/{}",
    "workloads/{}",
    "verdicts/{}",
    "targets?{}={}&sort={}",
    "targets?sort={}",
)
"""What an address alone can bring onto a page: a link in a chat is somebody else's."""


@pytest.mark.parametrize("query", QUERIES)
def test_hostile_text_in_an_address_is_text(hostile, query):
    path = query.replace("{run}", hostile.names["runs/id"]).replace("{}", quote(LINE, safe=""))
    looked_at(hostile, f"/ui/{path}")


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("sign-in", {"token": LINE, "next": "javascript:hostile()"}),
        ("ask/paste", {"pasted": TEXT, "target": LINE, "stack": LINE}),
        ("ask/keep", {"target": LINE, "stack": LINE, "image": LINE}),
        ("runs/new", dict.fromkeys(("suite", "target", "stack", "image", "priority"), LINE)),
        ("new-waiver", dict.fromkeys(("name", "rules", "targets", "owner", "expires"), TEXT)),
        ("entries/told/status", {"status": LINE, "reason": TEXT, "revision": "1"}),
        ("entries/told/status", {"status": "deprecated", "replacement": LINE, "reason": TEXT}),
        ("waivers/excepted/end", {"reason": "", "revision": LINE}),
        ("tokens/new", {"name": LINE, "scopes": LINE, "expires": LINE}),
        ("tokens/revoke", {"name": LINE}),
        ("theme", {"theme": LINE, "next": "//hostile.example"}),
    ],
)
def test_hostile_text_in_a_form_that_is_refused_is_text(hostile, path, fields):
    answer = post(hostile.client, path, **fields)
    assert 400 <= answer.status_code < 500
    assert list(Marks(answer.text).active()) == []


def test_what_a_form_did_is_text(hostile):
    answer = post(hostile.client, "ask/paste", pasted="torch==2.4.1", image=LINE)
    assert answer.status_code == 303
    looked_at(hostile, answer.headers["Location"])


@pytest.mark.parametrize("page", pages("GET"), ids=lambda page: page.path)
def test_a_file_that_a_page_exports_has_no_formula(hostile, page):
    answer = hostile.client.get(f"{place(page, hostile.names)}?format=csv")
    if answer.mimetype != "text/csv":
        return
    for row in csv.reader(io.StringIO(answer.text, newline="")):
        for cell in row:
            assert not cell.lstrip().startswith(("=", "+", "-", "@")) or _is_number(cell), row


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
