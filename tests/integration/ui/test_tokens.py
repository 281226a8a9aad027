"""The page of tokens: revoking is confirmed, and an administrator is left."""

from __future__ import annotations

from ui_forms import post


def test_one_click_asks_before_a_token_is_revoked(pages, stocked):
    client = pages("admin")
    ci = stocked.tokens.create("ci", ["gate"], by="t").token
    asked = post(client, "tokens/revoke", name="ci")
    assert asked.status_code == 200
    assert "Revoke the token ci?" in asked.text
    assert "Scopes: gate." in asked.text
    assert stocked.tokens.find("ci").is_active
    done = post(client, "tokens/revoke", name="ci", confirmed=ci.id)
    assert done.status_code == 303
    assert not stocked.tokens.find("ci").is_active


def test_the_last_administrator_stays(pages, stocked):
    client = pages("admin")
    (boss,) = [one for one in stocked.tokens.list(active=True).items if "admin" in one.scopes]
    refused = post(client, "tokens/revoke", name=boss.name, confirmed=boss.id)
    assert refused.status_code == 409
    assert "is the last one with the scope admin" in refused.text
    assert "create another admin token first" in refused.text
    assert stocked.tokens.find(boss.id).is_active
    stocked.tokens.create("deputy", ["admin"], by="t")
    assert post(client, "tokens/revoke", name=boss.name, confirmed=boss.id).status_code == 303


def test_a_token_that_is_not_there_is_not_found(pages):
    assert post(pages("admin"), "tokens/revoke", name="nobody").status_code == 404
