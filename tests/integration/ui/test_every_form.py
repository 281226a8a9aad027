"""No form is believed that is not ours, and none does what its sender may not; of every page."""

from __future__ import annotations

import re

import pytest
from ui_marks import Marks, form_token, pages, place, post

from compatgate.web.app import create_app
from compatgate.web.service import Settings

NAMES = {
    "entries/name": "torch24-cu124",
    "targets/name": "prod-a100",
    "waivers/name": "nothing",
    "runs/id": "run_0",
    "baselines/id": "1",
    "proposals/id": "pr_0",
    "revisions/number": "1",
    "nodes/name": "gpu-17",
    "incidents/id": "1",
    "upgrades/name": "roll",
}
FORMS = pages("POST")
SCOPES = ("read", "gate", "propose", "approve", "operate", "bless", "upgrade")
INCLUDED = {
    "gate": {"admission"}, "propose": {"plan"}, "upgrade": {"plan"},
    "operate": {"propose", "plan"}, "approve": {"propose", "plan"},
    "bless": {"propose", "approve", "plan"},
}  # fmt: skip
NEEDS = {
    "/ask/paste": "gate",
    "/find/paste": "gate",
    "/ask/keep": "gate",
    "/triage/causes": "gate",
    "/entries/<name>/status": "bless",
    "/new-waiver": "bless",
    "/new-target": "bless",
    "/new-entry": "bless",
    "/targets/<name>/edit": "bless",
    "/entries/<name>/edit": "bless",
    "/waivers/<name>/edit": "bless",
    "/import": "bless",
    "/waivers/<name>/end": "bless",
    "/proposals/new": "propose",
    "/proposals/<id>/review": "approve",
    "/proposals/<id>/act": "propose",
    "/proposals/<id>/merge": "propose",
    "/revisions/<number>/revert": "propose",
    "/incidents/<id>/act": "operate",
    "/baselines/<id>/approve": "bless",
    "/baselines/<id>/refuse": "bless",
    "/runs/new": "operate",
    "/runs/<id>/cancel": "operate",
    "/runs/<id>/discard": "bless",
    "/runs/<id>/rerun": "operate",
    "/nodes/<name>/remove": "operate",
    "/new-upgrade": "upgrade",
    "/upgrades/<name>/act": "upgrade",
    "/upgrades/<name>/review": "approve",
    "/tokens/new": "admin",
    "/tokens/revoke": "admin",
    "/tokens/rotate": "admin",
    "/sign-in": None,
    "/sign-out": None,
    "/theme": None,
    "/preferences": None,
}
"""The scope of every form: what decides what the gate lets through takes ``bless``."""


@pytest.fixture(scope="module")
def browsers(kept):
    """A browser for each set of scopes, on a gate that tests leave as it is."""
    made = {}

    def make(*scopes):
        if scopes not in made:
            client = create_app(kept.rooms, Settings(anonymous=frozenset())).test_client()
            if scopes:
                token = kept.rooms.tokens.create("form-" + "-".join(scopes), scopes, by="tester")
                fields = {"token": token.secret, "form_token": form_token(client)}
                assert client.post("/ui/sign-in", data=fields).status_code == 303
            made[scopes] = client
        return made[scopes]

    return make


@pytest.mark.parametrize("page", FORMS, ids=lambda page: page.path)
@pytest.mark.parametrize(
    ("field", "headers"),
    [
        (None, {}),
        ("", {}),
        ("0" * 64, {}),
        ("theirs", {}),
        ("mine", {"Sec-Fetch-Site": "cross-site"}),
        ("mine", {"Sec-Fetch-Site": "same-site"}),
    ],
)
def test_a_form_that_is_not_ours_does_nothing(browsers, kept, page, field, headers):
    client = browsers("admin")
    given = {"mine": form_token(client), "theirs": form_token(browsers("read"))}
    data = {} if field is None else {"form_token": given.get(field, field)}
    before = kept.rooms.audit.list_audit(limit=1).items[0].seq
    answer = client.post(place(page, NAMES), data=data, headers=headers)
    assert answer.status_code == 403
    assert kept.rooms.audit.list_audit(limit=1).items[0].seq == before


def test_the_scope_of_every_form_is_listed_here():
    """A new form fails this until somebody has decided which scope it takes."""
    scopes = {re.sub(r"<int[^:]*:", "<", page.path): page.scope for page in FORMS}
    assert scopes == NEEDS


def without(scope):
    """Every scope but one, and those that include it."""
    return [one for one in SCOPES if scope not in (one, *INCLUDED.get(one, ()))]


@pytest.mark.parametrize("page", [p for p in FORMS if p.scope], ids=lambda page: page.path)
def test_a_form_needs_the_scope_that_its_page_names(browsers, page):
    path = place(page, NAMES)
    others = without(page.scope)
    client = browsers(*others)
    answer = client.post(path, data={"form_token": form_token(client)})
    assert answer.status_code == 403
    assert f"lacks the scope {page.scope}" in answer.text
    stranger = browsers()
    answer = stranger.post(path, data={"form_token": form_token(stranger)})
    assert answer.status_code in (401, 403)


@pytest.mark.parametrize("page", [p for p in pages("GET") if p.scope], ids=lambda page: page.path)
def test_a_page_needs_the_scope_that_it_names(browsers, page):
    names = {
        **NAMES, "targets/name": "prod-a100", "revisions/number": "1", "facts/table": "gpus",
        "facts/name": "L4", "rules/id": "CG101", "workloads/name": "gemm", "runs/name": "x",
        "verdicts/verdict_id": "vd_0",
    }  # fmt: skip
    path = place(page, names)
    stranger = browsers().get(path)
    assert stranger.status_code == 303
    assert stranger.headers["Location"].startswith("/ui/sign-in?next=")
    if page.scope != "read":
        assert browsers(*without(page.scope)).get(path).status_code == 403


def test_only_pages_without_secrets_are_open_to_strangers():
    free = {page.path for page in pages("GET") if page.scope is None}
    assert free == {
        "/sign-in", "/sign-in/issuer", "/sign-in/done", "/signed-out", "/keys",
        "/preferences", "/<path:rest>",
    }  # fmt: skip
    assert {page.path for page in FORMS if page.scope is None} == {
        "/sign-in", "/sign-out", "/theme", "/preferences",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("tokens/new", {"name": "made-here", "scopes": "read"}),
        ("tokens/new", {"name": "", "scopes": "read"}),
        ("runs/new", {"suite": ""}),
        ("new-waiver", {"reason": ""}),
        ("ask/paste", {"pasted": "nothing of that kind"}),
        ("entries/torch24-cu124/status", {"status": "blessed"}),
    ],
)
def test_what_a_form_answers_leads_on_to_pages(browsers, path, fields):
    """Sorting, exporting and the theme lead to the page of the form, not to what takes it."""
    client = browsers("admin")
    marks = Marks(post(client, path, **fields).text)
    inputs = [a for tag, a in marks.elements if tag == "input" and a.get("name") == "next"]
    places = {a["value"] for a in inputs} | {v for v in marks.all("href") if "?" in v}
    assert places
    for one in places:
        assert client.get(one).status_code == 200, one
