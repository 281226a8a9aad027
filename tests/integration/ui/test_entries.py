"""The pages of entries: what they say, and who may change a status."""

from __future__ import annotations

import pytest
from ui_marks import post

from compatgate.web.pages import matrix as matrix_pages

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
ENTRY = "torch24-cu121"


def _spec(rooms, name=ENTRY):
    return rooms.matrix.get("Entry", name).document["spec"]


def _send(client, name=ENTRY, **fields):
    fields = {"revision": "1", "reason": "cuDNN 9.1 is out of support", **fields}
    return post(client, f"entries/{name}/status", **fields)


def test_the_list_is_filtered_and_says_what_runs_say(pages):
    client = pages()
    lines = client.get("/ui/entries?status=candidate&format=csv").text.splitlines()
    assert [line.partition(",")[0] for line in lines[1:]] == ["jax08-cu129", "torch29-cu130"]
    assert "waiting for runs" in lines[1]
    few = client.get("/ui/entries?target=inference-l4&component=vllm").text
    assert "vllm014-cu128" in few
    assert "torch24-cu124" not in few
    assert client.get("/ui/entries?status=good").status_code == 400


def test_a_list_names_some_of_many_targets_and_a_file_all(
    pages, stocked, by, entry_body, monkeypatch
):
    monkeypatch.setattr(matrix_pages, "_MAX_NAMED", 1)
    targets = ["dev-rtx", "inference-l4", "prod-a100"]
    stocked.matrix.create("Entry", entry_body("wide", targets=targets), by)
    client = pages()
    assert "dev-rtx and 2 more</td>" in client.get("/ui/entries?search=wide").text
    assert ", ".join(targets) in client.get("/ui/entries?search=wide&format=csv").text


def test_an_entry_says_where_it_stands_and_what_the_gate_says(pages):
    shown = pages().get("/ui/entries/torch24-cu124").text
    for said in (
        "suite dl-core passed on staging",
        "&gt;=535.104.05,&lt;536",
        "/ui/targets/prod-a100",
        "CG102",
        "/ui/ask?target=prod-a100&amp;stack=cuda",
        "Document as created",
    ):
        assert said in shown, said


def test_a_candidate_says_what_it_waits_for(pages):
    shown = pages().get("/ui/entries/torch29-cu130").text
    assert "Promotion" in shown
    assert "compatgate canary run --entry torch29-cu130 --suite smoke" in shown


def test_an_entry_that_nothing_stands_for_says_what_is_open(pages, stocked, by, entry_body):
    body = entry_body("driver-only", components={"driver": ">=535"})
    stocked.matrix.create("Entry", body, by)
    shown = pages().get("/ui/entries/driver-only").text
    assert "The entry cannot be evaluated: it names no component" in shown
    assert "every target" in shown


def test_its_status_is_changed_with_a_reason(pages, stocked):
    client = pages("read", "bless")
    answer = _send(client, status="deprecated", replacement="torch24-cu124")
    assert answer.status_code == 303
    assert answer.headers["Location"] == f"/ui/entries/{ENTRY}"
    spec = _spec(stocked)
    assert (spec["status"], spec["reason"], spec["replacement"]) == (
        "deprecated", "cuDNN 9.1 is out of support", "torch24-cu124",
    )  # fmt: skip
    row = stocked.matrix.show_revision(2)
    assert (row.author, row.reason) == ("read-bless-1", "cuDNN 9.1 is out of support")
    shown = client.get(f"/ui/entries/{ENTRY}").text
    assert "torch24-cu121 is deprecated since revision 2." in shown
    assert "<del>blessed</del>" in shown
    assert "<ins>deprecated</ins>" in shown


def test_a_candidate_is_approved(pages, stocked):
    client = pages("read", "bless")
    assert _send(client, "torch29-cu130", status="blessed", reason="measured").status_code == 303
    assert _spec(stocked, "torch29-cu130")["status"] == "blessed"


def test_a_change_that_was_overtaken_is_refused_and_keeps_what_was_typed(pages, stocked):
    mine, theirs = pages("read", "bless"), pages("read", "bless")
    assert _send(theirs, status="revoked", reason="it crashes").status_code == 303
    answer = _send(mine, status="deprecated", replacement="torch24-cu124", reason="slow & old")
    assert answer.status_code == 409
    assert "Revision 2 changed the Entry" in answer.text
    assert "slow &amp; old</textarea>" in answer.text
    assert 'name="revision" value="2"' in answer.text
    assert _spec(stocked)["status"] == "revoked"
    again = _send(mine, status="deprecated", revision="2")
    assert again.status_code == 303


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"status": "blessed"}, "The entry is blessed already"),
        ({"status": "candidate"}, "cannot be the new status"),
        ({}, "cannot be the new status"),
        ({"status": "revoked", "reason": ""}, "A change needs a reason"),
        ({"status": "revoked", "reason": "a\0b"}, "Contains unprintable characters"),
        ({"status": "revoked", "revision": "x"}, "is not a revision"),
        ({"status": "revoked", "revision": "9" * 40}, "is not a revision"),
        ({"status": "revoked", "replacement": ENTRY}, "An entry cannot replace itself"),
        ({"status": "revoked", "replacement": "a\nb"}, "replacement"),
    ],
)
def test_what_cannot_be_done_is_said_beside_the_form(pages, stocked, fields, said):
    answer = _send(pages("read", "bless"), **fields)
    assert answer.status_code == 400
    assert said in answer.text
    assert 'role="alert"' in answer.text
    assert stocked.gate.snapshot().revision == 1


def test_who_may_not_bless_is_not_asked_to_and_is_refused(pages, stocked):
    client = pages("read", "gate", "operate")
    assert "Change status" not in client.get(f"/ui/entries/{ENTRY}").text
    assert _send(client, status="revoked").status_code == 403
    assert _send(pages(), status="revoked").status_code == 401
    assert _spec(stocked)["status"] == "blessed"


def test_a_form_of_another_site_does_nothing(pages, stocked):
    client = pages("read", "bless")
    fields = {"revision": "1", "reason": "x", "status": "revoked"}
    assert client.post(f"/ui/entries/{ENTRY}/status", data=fields).status_code == 403
    assert _spec(stocked)["status"] == "blessed"


def test_what_is_not_there_is_not_found(pages):
    client = pages("read", "bless")
    assert client.get("/ui/entries/nothing").status_code == 404
    assert _send(client, "nothing", status="revoked").status_code == 404


def test_hostile_text_is_text(pages, stocked, by, entry_body):
    stocked.matrix.create("Entry", entry_body("made", reason=HOSTILE, replacement=HOSTILE), by)
    client = pages("read", "bless")
    answer = _send(client, "made", status="revoked", reason=HOSTILE, replacement=HOSTILE)
    assert "<script>alert" not in answer.text
    _send(client, "made", status="deprecated", revision="2", reason=HOSTILE, replacement=HOSTILE)
    for path in ("entries", "entries/made", "revisions", "revisions/2", "revisions/3",
                 f"entries?search={HOSTILE}", f"revisions?name={HOSTILE}"):  # fmt: skip
        shown = client.get(f"/ui/{path}").text
        assert "<script>alert" not in shown, path
        assert "<img src=x" not in shown, path


@pytest.fixture
def gate_of_needs(stocked, by):
    """The gate with an entry that states needs."""
    spec = {
        "targets": ["prod-a100"],
        "components": {"cuda": "99.*"},
        "status": "candidate",
        "needs": ["fp8", "60GiB"],
    }
    body = {"apiVersion": "compatgate.dev/v1", "kind": "Entry", "metadata": {"name": "needing"}}
    stocked.matrix.create("Entry", {**body, "spec": spec}, by)
    return stocked


def test_needs_of_a_gpu_are_shown_with_entry_question_and_answer(pages, gate_of_needs):
    client = pages()
    assert "fp8, 60GiB" in client.get("/ui/entries/needing").text
    asked = client.get(
        "/ui/ask?driver=580.95.05&gpu=A100-SXM4-80GB&stack=cuda%3D12.4%2Carch%3Dsm_80%2Cneeds%3Dfp8"
    ).text
    assert "needs fp8" in asked
    assert "does not compute in FP8" in asked


def test_blessing_without_required_evidence_asks_for_a_reason_that_stays(pages, stocked, by):
    target = stocked.matrix.get("Target", "prod-a100").document
    target["spec"]["policy"]["canary"] = {"require": True}
    stocked.matrix.change("Target", "prod-a100", target, by)
    spec = {"targets": ["prod-a100"], "components": {"cuda": "12.9.*"}, "status": "candidate"}
    stocked.matrix.create("Entry", {"metadata": {"name": "bold"}, "spec": spec}, by)
    client = pages("read", "bless")
    sent = {"status": "blessed", "revision": str(stocked.gate.snapshot().revision)}
    refused = _send(client, "bold", **sent)
    assert refused.status_code == 409
    assert "has not passed: suite smoke for bold" in refused.text
    assert "Justification for blessing without the required evidence" in refused.text
    assert _send(client, "bold", **sent, override="the fan is broken").status_code == 303
    shown = client.get("/ui/entries/bold").text
    assert "Blessed without the required evidence:</strong> the fan is broken" in shown
    assert "overridden" in client.get("/ui/entries").text
