"""The pages of waivers: how long they hold, and making and ending them."""

from __future__ import annotations

import html
import re
from datetime import timedelta

import pytest
from ui_marks import post

from compatgate.kit import clock

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
TYPED = {
    "name": "night-run",
    "rules": "cg802",
    "targets": "prod-a100",
    "components": "torch ~=2.3.0",
    "owner": "team-night",
    "why": "moves to torch 2.4 next week",
    "reason": "until the nightly job has moved",
}


def _day(days: int) -> str:
    return (clock.today() + timedelta(days=days)).isoformat()


def _make(client, **fields):
    return post(client, "new-waiver", **{**TYPED, "expires": _day(5), **fields})


def test_what_ends_first_comes_first_and_what_ended_stands_apart(pages, stocked):
    client = pages("read", "bless")
    assert _make(client).status_code == 303
    assert _make(client, name="old-one", expires=_day(-3)).status_code == 303
    shown = client.get("/ui/waivers").text
    held, _, over = shown.partition("<h2>Ended</h2>")
    assert held.index("/ui/waivers/night-run") < held.index("/ui/waivers/legacy-ocr")
    assert "/ui/waivers/old-one" in over
    assert "ends soon" in held
    everything = client.get("/ui/waivers?format=csv").text
    assert "old-one,-3,ended" in everything
    assert "night-run" not in client.get("/ui/waivers?owner=team-ocr").text


def test_a_waiver_is_made_and_counts_at_once(pages, stocked):
    client = pages("read", "bless")
    answer = _make(client, image="registry.example/night/*")
    assert answer.headers["Location"] == "/ui/waivers/night-run"
    document = stocked.matrix.get("Waiver", "night-run").document
    assert document["spec"]["match"] == {
        "image": "registry.example/night/*",
        "components": {"torch": "~=2.3.0"},
    }
    assert stocked.matrix.show_revision(2).reason == TYPED["reason"]
    assert "Created night-run in revision 2." in client.get("/ui/waivers/night-run").text
    stack = {"cuda": "11.8", "cudnn": "8.7.0", "torch": "2.3.1+cu118", "arch": "sm_80"}
    body = {"target": "prod-a100", "stack": stack, "image": "registry.example/night/a:1"}
    assert "CG821" in {f.rule for f in stocked.gate.preview(body).findings}


def test_a_verdicts_page_begins_the_form(pages):
    client = pages("read", "bless")
    shown = client.get("/ui/new-waiver?rules=CG801,%20CG104&targets=prod-a100&image=a/b:1").text
    assert 'value="CG801, CG104"' in shown
    assert 'value="a/b:1"' in shown
    assert f'value="{_day(7)}"' in shown


STACK = {"cuda": "12.1", "cudnn": "8.9.7", "torch": "2.2.2+cu121", "arch": "sm_80"}
DENIED = {"target": "prod-a100", "stack": STACK}


def _begun(client, verdict):
    """The fields of the form that the page of a verdict leads to."""
    page = client.get(f"/ui/verdicts/{verdict.id}").text
    (href,) = re.findall(r'href="([^"]*/new-waiver[^"]*)"', page)
    form = client.get(html.unescape(href)).text
    values = re.findall(r'name="(\w+)"(?: type="date")? value="([^"]*)"', form)
    (components,) = re.findall(r'name="components"[^>]*>([^<]*)<', form)
    fields = {name: html.unescape(value) for name, value in values}
    fields |= {"components": html.unescape(components)}
    assert fields.pop("everything") == "yes"
    assert 'value="yes" checked' not in form
    del fields["form_token"], fields["what"]
    return {**fields, "name": "hurry", "owner": "team", "why": "w", "reason": "r"}


@pytest.mark.parametrize("image", [None, "registry.example/team/app:1.4"])
def test_what_denies_a_stack_is_waived_for_it_alone_and_for_a_week(pages, stocked, image, by):
    client = pages("read", "gate", "bless")
    deprecated = stocked.matrix.get("Entry", "torch22-cu121").document
    spec = {**deprecated["spec"], "status": "revoked"}
    body = {"metadata": {"name": "torch22-cu121"}, "spec": spec}
    stocked.matrix.change("Entry", "torch22-cu121", body, by)
    asked = {**DENIED, "image": image} if image else DENIED
    verdict = stocked.gate.decide(asked, asked_by="t", source="rest")
    assert not verdict.allowed
    fields = _begun(client, verdict)
    assert (fields["image"], fields["expires"]) == (image or "", _day(7))
    wanted = "cuda ==12.1\ncudnn ==8.9.7\ntorch ==2.2.2+cu121"
    assert fields["components"] == ("" if image else wanted)
    assert post(client, "new-waiver", **fields).status_code == 303
    assert stocked.gate.preview(asked).allowed
    other = {"image": f"{image}1"} if image else {"stack": {**STACK, "cudnn": "8.9.2"}}
    assert not stocked.gate.preview({**asked, **other}).allowed


def test_a_waiver_for_every_stack_is_confirmed(pages, stocked):
    client = pages("read", "bless")
    refused = _make(client, components="")
    assert refused.status_code == 400
    assert "for every stack of its targets" in refused.text
    assert _make(client, components="", everything="yes").status_code == 303
    assert stocked.matrix.get("Waiver", "night-run").document["spec"]["match"] == {
        "everything": True
    }


def test_a_waiver_that_lasts_too_long_is_refused_with_the_latest_day(pages):
    refused = _make(pages("read", "bless"), expires=_day(91))
    assert refused.status_code == 400
    assert "spec.expires" in refused.text
    assert _day(90) in refused.text


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"rules": "CG999"}, "rule CG999 does not exist"),
        ({"rules": ""}, "rules is missing"),
        ({"targets": "nowhere"}, "nowhere"),
        ({"name": "a b"}, "metadata.name"),
        ({"name": "legacy-ocr"}, "exists"),
        ({"expires": "soon"}, "spec.expires"),
        ({"components": "torch"}, "needs a version"),
        ({"components": "driver >=535"}, "the driver belongs to the pool"),
        ({"owner": ""}, "owner is missing"),
        ({"reason": ""}, "a change needs a reason"),
    ],
)
def test_what_is_wrong_is_said_and_what_was_typed_is_kept(pages, stocked, fields, said):
    answer = _make(pages("read", "bless"), **fields)
    assert answer.status_code in (400, 409)
    assert said in answer.text
    assert "moves to torch 2.4 next week</textarea>" in answer.text
    assert stocked.gate.snapshot().revision == 1


def test_it_is_ended_now_and_stays_to_be_read(pages, stocked):
    client = pages("read", "bless")
    fields = {"revision": "1", "reason": "it has moved"}
    answer = post(client, "waivers/legacy-ocr/end", how="end", **fields)
    assert answer.status_code == 303
    assert stocked.matrix.get("Waiver", "legacy-ocr").document["spec"]["expires"] == _day(-1)
    shown = client.get("/ui/waivers/legacy-ocr").text
    assert "ended 1 d ago" in shown
    assert "End now" not in shown
    late = post(client, "waivers/legacy-ocr/end", how="delete", **fields)
    assert late.status_code == 409
    assert "it has moved</textarea>" in late.text
    fields["revision"] = "2"
    gone = post(client, "waivers/legacy-ocr/end", how="delete", **fields)
    assert gone.headers["Location"] == "/ui/waivers"
    assert client.get("/ui/waivers/legacy-ocr").status_code == 404
    revision = client.get("/ui/revisions/3").text
    assert "Document before the deletion" in revision
    assert 'href="/ui/waivers/legacy-ocr"' not in revision


def test_who_may_not_bless_can_neither_make_nor_end_one(pages, stocked):
    client = pages("read", "gate", "operate")
    assert "New waiver" not in client.get("/ui/waivers").text
    assert "<h2>End</h2>" not in client.get("/ui/waivers/legacy-ocr").text
    assert client.get("/ui/new-waiver").status_code == 403
    assert _make(client).status_code == 403
    ending = post(client, "waivers/legacy-ocr/end", how="end", revision="1", reason="x")
    assert ending.status_code == 403
    assert stocked.gate.snapshot().revision == 1


def test_nothing_waived_teaches_how(pages, stocked, by):
    stocked.matrix.delete("Waiver", "legacy-ocr", by)
    shown = pages().get("/ui/waivers").text
    assert "No waivers." in shown
    assert "compatgate matrix import waiver.yaml" in shown


def test_hostile_text_is_text(pages):
    client = pages("read", "bless")
    refused = _make(client, **dict.fromkeys((*TYPED, "expires", "image"), HOSTILE))
    assert "<script>alert" not in refused.text
    made = _make(client, owner=HOSTILE, why=HOSTILE, reason=HOSTILE, image=HOSTILE)
    assert made.status_code == 303
    for path in ("waivers", "waivers/night-run", f"waivers?search={HOSTILE}", "revisions/2",
                 "targets/prod-a100", f"new-waiver?rules={HOSTILE}"):  # fmt: skip
        shown = client.get(f"/ui/{path}").text
        assert "<script>alert" not in shown, path
        assert "<img src=x" not in shown, path
