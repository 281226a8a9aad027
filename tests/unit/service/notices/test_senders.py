"""What a receiver gets, and what is never sent or said."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from email import message_from_string, policy

import pytest
from notice_receivers import mail_relay, web_receiver

from compatgate.errors import BadInput
from compatgate.kit import clock
from compatgate.service.notices.desk import read_channel
from compatgate.service.notices.formats import Message, Notice, NoticeMember
from compatgate.service.notices.schemas import ChannelRequest
from compatgate.service.notices.senders import NoticeOptions, Relay, parse_relay, read_options, send
from compatgate.service.webhooks.signatures import HEADER, Secret, verify

AT = datetime(2026, 11, 23, 12, tzinfo=UTC)
KEY = "0123456789abcdef"
LOCAL = read_options(("127.0.0.0/8",), "https://gate.example", {})
MEMBER = NoticeMember("drift", "prod-a100", "<!channel> has 3 nodes [x](http://evil)", "team-ml")
NOTICE = Notice(
    7, 1, "drift", "fail", "3 nodes", 3, ("team-ml",), ("prod-a100",), AT, AT, (MEMBER,)
)
MESSAGE = Message("nd_1", "oncall", "page", AT, (NOTICE,))


@pytest.fixture
def receiver():
    with web_receiver() as receiver:
        yield receiver


def test_a_webhook_is_signed_over_time_path_and_body(receiver):
    url = f"{receiver.url}/hook?team=gpu"
    attempt = send("webhook", {"url": url, "key": KEY}, MESSAGE, LOCAL)
    assert attempt.sent
    (got,) = receiver.posted
    assert got.headers["Idempotency-Key"] == "nd_1"
    secrets = (Secret("mine", KEY.encode()),)
    now = clock.now().timestamp()
    assert verify(secrets, got.headers[HEADER], now, "POST", "/hook?team=gpu", got.body) == "mine"
    body = json.loads(got.body)
    assert (body["schema"], body["urgency"], body["test"]) == (
        "compatgate.dev/notice/v1",
        "page",
        False,
    )
    assert body["notices"][0]["url"] == "https://gate.example/ui/incidents/7"
    assert body["notices"][0]["owners"] == ["team-ml"]


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/x", "http://localhost:9/x", "http://[::1]:9/"])
def test_a_private_address_is_refused_unless_its_network_is_allowed(url):
    attempt = send("webhook", {"url": url, "key": KEY}, MESSAGE, NoticeOptions())
    assert not attempt.sent
    assert "is not a public address" in attempt.answer


def test_a_redirect_is_not_followed(receiver):
    receiver.statuses, receiver.location = [307], f"{receiver.url}/elsewhere"
    attempt = send("webhook", {"url": f"{receiver.url}/hook", "key": KEY}, MESSAGE, LOCAL)
    assert not attempt.sent
    assert [one.path for one in receiver.posted] == ["/hook"]


def test_the_answer_kept_holds_no_part_of_the_url_that_is_secret(receiver):
    receiver.statuses = [500]
    url = f"{receiver.url}/services/T000/B000/tokentokentoken"
    attempt = send("slack", {"url": url}, MESSAGE, LOCAL)
    assert attempt.answer.startswith("500 asked for /")
    assert "tokentokentoken" not in attempt.answer


def test_slack_and_teams_get_text_that_mentions_and_links_nothing(receiver):
    for kind in ("slack", "teams"):
        assert send(kind, {"url": f"{receiver.url}/{kind}"}, MESSAGE, LOCAL).sent
    slack, teams = (json.loads(one.body) for one in receiver.posted)
    section = slack["blocks"][1]["text"]["text"]
    assert "&lt;!channel&gt;" in section
    assert section.endswith("<https://gate.example/ui/incidents/7|Open>")
    card = teams["attachments"][0]["content"]
    assert {one["type"] for one in card["body"]} == {"RichTextBlock"}


def test_an_email_goes_to_every_address_through_the_relay():
    with mail_relay() as relay:
        options = NoticeOptions((), Relay("127.0.0.1", relay.port, "none"), "gate@example.com")
        addresses = ["a@example.com", "b@example.com"]
        assert send("email", {"to": addresses}, MESSAGE, options).sent
        relay.refused = "b@"
        partly = send("email", {"to": addresses}, MESSAGE, options)
    assert (partly.sent, partly.answer) == (True, "accepted, but not for b@example.com")
    recipients, text = relay.mails[0]
    assert recipients == addresses
    mail = message_from_string(text, policy=policy.default)
    assert mail["Subject"] == "[page] compatgate: Drifted nodes"
    assert mail["Message-ID"] == "<nd_1@example.com>"
    assert "prod-a100: <!channel> has 3 nodes" in mail.get_content()


def test_without_a_relay_an_email_says_what_to_set():
    attempt = send("email", {"to": ["a@example.com"]}, MESSAGE, NoticeOptions())
    assert not attempt.sent
    assert "COMPATGATE_SMTP" in attempt.answer


def test_a_secret_may_be_a_variable_of_the_server(receiver, monkeypatch):
    wanted = ChannelRequest("webhook", "env:COMPATGATE_NOTICE_URL", "env:COMPATGATE_NOTICE_KEY")
    secret, place, made = read_channel(wanted)
    assert (place, made) == ("env:COMPATGATE_NOTICE_URL", None)
    missing = send("webhook", secret, MESSAGE, LOCAL)
    assert "COMPATGATE_NOTICE_URL is not set" in missing.answer
    monkeypatch.setenv("COMPATGATE_NOTICE_URL", f"{receiver.url}/hook")
    monkeypatch.setenv("COMPATGATE_NOTICE_KEY", KEY)
    assert send("webhook", secret, MESSAGE, LOCAL).sent


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        (ChannelRequest("webhook", "https://user:s3cret@hooks.example/x"), "url"),
        (ChannelRequest("webhook", "ftp://hooks.example/x"), "url"),
        (ChannelRequest("webhook", "http://[bad"), "url"),
        (ChannelRequest("slack", "http://hooks.example/x"), "url"),
        (ChannelRequest("slack", "https://hooks.example/x", key=KEY), "key"),
        (ChannelRequest("webhook", "https://hooks.example/x", key="short"), "key"),
        (ChannelRequest("webhook", "env:PATH"), "url"),
        (ChannelRequest("webhook", "https://hooks.example/x", key="env:PATH"), "key"),
        (ChannelRequest("email", to=[]), "to"),
        (ChannelRequest("email", to=["a@b\nBcc: c@d"]), "to"),
        (ChannelRequest("teams", "https://hooks.example/x", to=["a@example.com"]), "to"),
    ],
)
def test_a_bad_channel_is_refused_with_its_field_and_without_its_secret(wanted, field):
    with pytest.raises(BadInput) as error:
        read_channel(wanted)
    assert error.value.field == field
    assert "s3cret" not in str(error.value)


def test_a_relay_is_read_and_never_sends_a_password_in_clear():
    relay = parse_relay("smtp://me:p%40ss@relay.example")
    assert (relay.port, relay.password, relay.security) == (587, "p@ss", "starttls")
    assert "p@ss" not in repr(relay)
    for text in ("relay.example", "http://relay.example", "smtp+plain://me:pass@relay.example"):
        with pytest.raises(BadInput) as error:
            parse_relay(text)
        assert "pass@" not in str(error.value)
