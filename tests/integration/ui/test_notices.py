"""The page of notices: channels and subscriptions in forms, and no secret on any page."""

from __future__ import annotations

import re

from notice_receivers import web_receiver
from ui_marks import post

from compatgate.service.notices.senders import read_options

URL = "https://hooks.example.com/services/secret-part"


def test_a_key_is_shown_once_and_the_url_never(pages, stocked):
    client = pages("admin", "operate")
    made = post(client, "notices/channels", name="oncall", kind="webhook", url=URL)
    assert made.status_code == 200
    (key,) = set(re.findall(r"[0-9a-f]{64}(?=</code>)", made.text))
    later = client.get("/ui/notices").text
    assert "https://hooks.example.com" in later
    audited = str([one.detail for one in stocked.history.list_audit(action="notices.").items])
    for text in (later, audited, client.get("/ui/audit").text):
        assert key not in text
        assert "secret-part" not in text
    assert "secret-part" not in made.text


def test_forms_keep_subscriptions_and_say_what_is_wrong(pages, stocked):
    client = pages("admin", "operate")
    mail = {"name": "mail", "kind": "email", "to": "a@example.com, b@example.com"}
    assert post(client, "notices/channels", **mail).status_code == 303
    wanted = {"name": "ml", "channel": "mail", "kinds": ["drift", "release"], "owners": "team-ml"}
    wanted |= {"labels": "tier=prod", "targets": "prod-*", "digest": "24h", "level": "warn"}
    assert post(client, "notices/subscriptions", **wanted).status_code == 303
    text = client.get("/ui/notices").text
    assert "drift, release, team-ml, tier=prod, prod-*, warn or worse" in text
    assert "every 1 d" in text
    bad = post(client, "notices/subscriptions", **{**wanted, "labels": "prod"})
    assert bad.status_code == 400
    assert "for example tier=prod" in bad.text
    assert 'value="prod-*"' in bad.text
    assert post(client, "notices/channels", name="X", kind="fax").status_code == 400
    used = post(client, "notices/delete-channel", name="mail")
    assert used.status_code == 409
    assert "has subscriptions: ml" in used.text
    assert post(client, "notices/unsubscribe", name="ml").status_code == 303
    assert post(client, "notices/delete-channel", name="mail").status_code == 303
    assert stocked.notices.list_channels() == []


def test_the_test_button_tells_what_the_receiver_answered(pages, stocked):
    client = pages("admin", "operate")
    with web_receiver() as receiver:
        fields = {"name": "local", "kind": "webhook", "url": f"{receiver.url}/h", "key": "k" * 16}
        assert post(client, "notices/channels", **fields).status_code == 303
        refused = post(client, "notices/test", name="local")
        assert refused.status_code == 400
        assert "is not a public address" in refused.text
        stocked.notices.options = read_options(("127.0.0.0/8",), "", {})
        assert post(client, "notices/test", name="local").status_code == 303
    assert len(receiver.posted) == 1
    shown = client.get("/ui/notices?channel=local&state=sent").text
    assert "compatgate: test message" in shown
    assert "200 asked for /h" in shown
    assert post(client, "notices/test", name="nobody").status_code == 404


def test_who_may_only_read_sees_no_form(pages, stocked):
    text = pages("read").get("/ui/notices").text
    assert "No channels yet." in text
    assert 'action="/ui/notices/' not in text
