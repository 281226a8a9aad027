"""The pages of proposals: the list, the difference, approvals, merge and revert."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from ui_marks import post

from compatgate.errors import Conflict
from compatgate.kit import clock
from compatgate.kit.principal import Authorship
from compatgate.service.matrix.proposals.schemas import ProposalRequest, ProposedPool

SOON = (clock.today() + timedelta(days=7)).isoformat()
ANN = Authorship("ann", "calmer nights")


@pytest.fixture
def asked(stocked):
    """A change of a target with two people, which waits."""
    body = stocked.matrix.get("Target", "prod-a100").document
    body["spec"]["policy"]["approvals"] = 2
    stocked.matrix.change("Target", "prod-a100", body, ANN)
    body["spec"]["policy"]["mode"] = "audit"
    with pytest.raises(Conflict) as needed:
        stocked.matrix.change("Target", "prod-a100", body, ANN)
    return needed.value.value


def mode(stocked):
    document = stocked.matrix.get("Target", "prod-a100").document
    return document["spec"]["policy"]["mode"]


def act(client, number, page, **fields):
    if fields.get("what") == "merge":
        shown = client.get(f"/ui/proposals/{number}").text
        fields["digest"] = "".join(re.findall(r'name="digest" value="(\w+)"', shown)[:1])
    return post(client, f"proposals/{number}/{page}", **fields)


def test_a_change_that_waits_is_shown_and_approved(pages, stocked, asked):
    client = pages("read", "bless")
    assert asked in client.get("/ui/proposals").text
    assert asked in client.get("/ui/proposals?state=open&author=ann").text
    assert asked not in client.get("/ui/proposals?state=merged").text
    shown = client.get(f"/ui/proposals/{asked}").text
    for text in ("calmer nights", "<del>enforce</del>", "requires 1 more approval", ">Approve<"):
        assert text in shown
    assert "Proposals" in client.get("/ui/revisions").text
    assert "needs two people" in client.get("/ui/targets/prod-a100").text
    digest = re.search(r'name="digest" value="(\w+)"', shown)[1]
    assert act(client, asked, "review", what="approve").status_code == 409
    assert act(client, asked, "review", what="approve", digest="0" * 64).status_code == 409
    assert act(client, asked, "review", what="approve", digest=digest).status_code == 303
    assert mode(stocked) == "audit"
    assert act(client, asked, "review", what="approve").status_code == 409
    revision = stocked.gate.snapshot().revision
    assert (
        f'Merged by <a href="/ui/proposals/{asked}"' in client.get(f"/ui/revisions/{revision}").text
    )


def test_the_author_withdraws_but_does_not_approve(pages, stocked, asked):
    client = pages("read", "bless")
    assert act(client, asked, "review", what="close", comment="no").status_code == 303
    fields = {"name": "mine", "rules": "CG803", "targets": "prod-a100", "everything": "on"}
    refused = post(client, "new-waiver", **fields, owner="x", why="y", reason="z", expires=SOON)
    assert refused.status_code == 409
    assert "requires two people" in refused.text
    (view,) = stocked.proposals.list(state="open").items
    number = view.row.id
    shown = client.get(f"/ui/proposals/{number}").text
    assert "Withdraw" in shown
    assert ">Approve<" not in shown
    assert act(client, number, "review", what="approve").status_code == 403
    assert act(client, number, "review", what="praise").status_code == 400
    assert act(client, number, "act", what="close", comment="soon").status_code == 303
    assert "soon" in client.get(f"/ui/proposals/{number}").text
    assert mode(stocked) == "enforce"


def test_a_change_is_proposed_in_a_form_and_merged_and_its_revision_is_reverted(pages, stocked):
    client = pages("read", "bless")
    text = "apiVersion: compatgate.dev/v1\nkind: Entry\nmetadata: {name: typed}\nspec: {%s}\n"
    rest = "targets: [prod-a100], components: {cuda: 12.9.*}, status: candidate"
    wrong = post(client, "proposals/new", documents=text % "", reason="new")
    assert wrong.status_code == 400
    assert "metadata: {name: typed}" in wrong.text, "what was typed is kept"
    made = post(client, "proposals/new", documents=text % rest, reason="new")
    number = made.location.rpartition("/")[2]
    assert "Nothing is missing" in client.get(f"/ui/proposals/{number}").text
    assert act(client, number, "merge", what="merge").status_code == 303
    assert client.get("/ui/entries/typed").status_code == 200
    revision = stocked.gate.snapshot().revision
    assert post(client, f"revisions/{revision}/revert", reason="no").status_code == 303
    assert client.get("/ui/entries/typed").status_code == 404
    asked = post(client, f"revisions/{revision + 1}/revert", reason="yes", propose="on")
    assert "/ui/proposals/pr_" in asked.location
    assert post(client, f"revisions/{revision}/revert", reason="no").status_code == 409


def test_a_merge_without_the_required_evidence_asks_for_a_reason(pages, stocked):
    body = stocked.matrix.get("Target", "prod-a100").document
    body["spec"]["policy"]["canary"] = {"require": True}
    stocked.matrix.change("Target", "prod-a100", body, ANN)
    entry = {
        "apiVersion": "compatgate.dev/v1",
        "kind": "Entry",
        "metadata": {"name": "bold"},
        "spec": {
            "targets": ["prod-a100"],
            "components": {"cuda": "12.9.*"},
            "status": "blessed",
        },
    }
    number = stocked.proposals.propose(ProposalRequest(documents=[entry]), ANN).row.id
    client = pages("read", "bless")
    shown = client.get(f"/ui/proposals/{number}").text
    assert "Merge anyway" in shown
    assert act(client, number, "merge", what="merge").status_code == 409
    done = act(client, number, "merge", what="merge", override="the fan is broken")
    assert done.status_code == 303
    assert "Merged without the required evidence:" in client.get(f"/ui/proposals/{number}").text


def test_who_only_proposes_cannot_merge(pages, stocked):
    edits = ProposalRequest(pools=[ProposedPool("prod-a100", {"driver": "580.95.05"})])
    number = stocked.proposals.propose(edits, ANN).row.id
    client = pages("read", "propose")
    shown = client.get(f"/ui/proposals/{number}").text
    assert 'value="merge"' not in shown
    assert 'value="approve"' not in shown
    assert act(client, number, "merge", what="merge").status_code == 403
