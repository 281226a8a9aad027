"""The page of approvals: what waits, field by field, and the second person's decision."""

from __future__ import annotations

from datetime import timedelta

import pytest
from ui_forms import post

from compatgate.errors import Conflict
from compatgate.kit import clock
from compatgate.service.matrix.service import Authorship

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


def test_what_waits_is_shown_and_approved(pages, stocked, asked):
    client = pages("read", "bless")
    shown = client.get("/ui/approvals").text
    assert asked in shown
    assert "calmer nights" in shown
    assert "enforce" in shown
    assert "audit" in shown
    assert "Approvals" in client.get("/ui/revisions").text
    assert "needs two people" in client.get("/ui/targets/prod-a100").text
    done = post(client, "approvals/decide", id=asked, what="approve")
    assert done.status_code == 303
    assert mode(stocked) == "audit"
    assert post(client, "approvals/decide", id=asked, what="approve").status_code == 409


def test_the_author_withdraws_but_does_not_approve(pages, stocked, asked):
    client = pages("read", "bless")
    assert post(client, "approvals/decide", id=asked, what="refuse").status_code == 303
    fields = {"name": "mine", "rules": "CG803", "targets": "prod-a100", "everything": "on"}
    refused = post(client, "new-waiver", **fields, owner="x", why="y", reason="z", expires=SOON)
    assert refused.status_code == 409
    assert "asks for two people" in refused.text
    shown = client.get("/ui/approvals").text
    assert "Withdraw" in shown
    assert ">Approve<" not in shown
    (number,) = [one.id for one in stocked.matrix.list_approvals(waiting=True).items]
    assert post(client, "approvals/decide", id=number, what="approve").status_code == 403
    assert post(client, "approvals/decide", id=number, what="praise").status_code == 400
    assert mode(stocked) == "enforce"
