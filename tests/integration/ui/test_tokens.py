"""The page of tokens: revoking is confirmed, and an administrator is left."""

from __future__ import annotations

import re

from ui_marks import post


def test_one_click_asks_before_a_token_is_revoked(pages, stocked):
    client = pages("admin")
    ci = stocked.tokens.create("ci", ["gate"], by="t").token
    asked = post(client, "tokens/revoke", name="ci")
    assert asked.status_code == 200
    assert "Revoke the token ci?" in asked.text
    assert "Scopes: gate." in asked.text
    assert stocked.tokens.find("ci").active
    done = post(client, "tokens/revoke", name="ci", confirmed=ci.id)
    assert done.status_code == 303
    assert not stocked.tokens.find("ci").active


def test_the_last_administrator_stays(pages, stocked):
    client = pages("admin")
    (boss,) = [one for one in stocked.tokens.list(active=True).items if "admin" in one.scopes]
    refused = post(client, "tokens/revoke", name=boss.name, confirmed=boss.id)
    assert refused.status_code == 409
    assert "is the last one with the scope admin" in refused.text
    assert "create another admin token first" in refused.text
    assert stocked.tokens.find(boss.id).active
    stocked.tokens.create("deputy", ["admin"], by="t")
    assert post(client, "tokens/revoke", name=boss.name, confirmed=boss.id).status_code == 303


def test_a_token_that_is_not_there_is_not_found(pages):
    assert post(pages("admin"), "tokens/revoke", name="nobody").status_code == 404


def test_a_secret_is_rotated_and_shown_once(pages, stocked):
    client = pages("admin")
    made = stocked.tokens.create("ci", ["gate"], by="t", targets=["prod-*"])
    answer = post(client, "tokens/rotate", name="ci", overlap="24h")
    assert answer.status_code == 200
    (secret,) = set(re.findall(r"cg_[\w-]{43}", answer.text))
    assert stocked.tokens.verify(secret).token_id == made.token.id
    assert stocked.tokens.verify(made.secret).token_id == made.token.id
    listed = client.get("/ui/tokens").text
    assert secret not in listed
    assert "prod-*" in listed
    assert "the previous secret is valid until" in listed
    refused = post(client, "tokens/rotate", name="ci", overlap="60d")
    assert refused.status_code == 400
    assert "at most 30d" in refused.text


def test_a_token_is_limited_to_targets_and_does_not_sign_in(pages, stocked):
    client = pages("admin")
    answer = post(client, "tokens/new", name="team", scopes=["read"], targets="prod-*, lab")
    (secret,) = set(re.findall(r"cg_[\w-]{43}", answer.text))
    assert stocked.tokens.verify(secret).targets == ("lab", "prod-*")
    refused = post(client, "sign-in", token=secret)
    assert refused.status_code == 403
    assert "is limited to lab, prod-*" in refused.text
    stocked.refusals.flush()
    (link, *_) = stocked.audit.list_audit(action="access.refused").items
    assert (link.actor, link.subject) == ("team", "POST /ui/sign-in")
