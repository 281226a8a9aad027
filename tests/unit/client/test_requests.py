"""Requests as plain data: paths, queries, bodies.

Whether and when a request is tried again.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from email.utils import format_datetime

import httpx
import pytest

from compatgate.client.operations import Operations as Ask
from compatgate.client.request import entity_tag
from compatgate.client.settings import Outcome, Retries, base_of
from compatgate.errors import BadInput


def test_names_are_quoted_and_none_of_them_leaves_its_place() -> None:
    assert Ask.show_target.request("a b/ü?").url == "/api/v1/targets/a%20b%2F%C3%BC%3F"
    assert Ask.show_target.request("..").url == "/api/v1/targets/%2E%2E"
    assert Ask.show_target.request("{name}").url == "/api/v1/targets/%7Bname%7D"
    with pytest.raises(BadInput, match="name: must not be empty"):
        _ = Ask.show_target.request("").url


def test_what_is_not_asked_for_is_not_in_the_query() -> None:
    assert Ask.list_targets.request().url == "/api/v1/targets"
    assert Ask.list_tokens.request(active=False).url == "/api/v1/tokens?active=false"
    assert Ask.diff_revisions.request(3, older=0).url == "/api/v1/revisions/3/diff?from=0"


@pytest.mark.parametrize(
    ("when", "sent"),
    [
        (datetime(2026, 11, 3, 9, 30, tzinfo=UTC), "2026-11-03T09%3A30%3A00Z"),
        (datetime(2026, 11, 3, 9, 30), "2026-11-03T09%3A30%3A00Z"),
        (datetime(2026, 11, 3, 9, tzinfo=timezone(timedelta(hours=1))), "2026-11-03T08%3A00%3A00Z"),
        (date(2026, 11, 3), "2026-11-03"),
        ("2026-11-03", "2026-11-03"),
    ],
)
def test_times_are_sent_in_utc(when: datetime | date | str, sent: str) -> None:
    assert Ask.list_runs.request(since=when).url == f"/api/v1/runs?since={sent}"


def test_a_reason_goes_with_every_change() -> None:
    change = Ask.change_entry.request("e", {"spec": {}}, reason="why", if_match=7)
    assert change.body == {"spec": {}, "reason": "why"}
    assert change.if_match == '"r7"'
    assert "reason=why" in Ask.delete_entry.request("e", reason="why").url
    assert entity_tag('"r7.0a"') == '"r7.0a"'


def test_yaml_is_sent_as_it_is_and_documents_as_json() -> None:
    text = Ask.import_matrix.request("kind: Entry\n", reason="r")
    assert (text.media, text.content()) == ("application/yaml", b"kind: Entry\n")
    listed = Ask.import_matrix.request([{"kind": "Entry"}], reason="r")
    assert (listed.media, listed.content()) == ("application/json", b'[{"kind":"Entry"}]')
    assert not text.repeatable
    assert Ask.import_matrix.request("", reason="r", dry_run=True).repeatable


def test_a_url_with_a_password_is_refused_and_not_shown() -> None:
    with pytest.raises(BadInput, match="contains a user or password") as raised:
        base_of("https://user:hunter2@gate.example")
    assert "hunter2" not in raised.value.detail


RETRIES = Retries(most=3, first_s=1.0, longest_s=30.0)
BUSY = httpx.Response(503)


def pause(outcome: Outcome, number: int = 1, *, repeatable: bool = True) -> float | None:
    return RETRIES.pause(number, outcome, repeatable=repeatable)


@pytest.mark.parametrize(("number", "longest"), [(1, 1.0), (2, 2.0), (3, 4.0)])
def test_pauses_double_and_are_spread(number: int, longest: float) -> None:
    found = pause(BUSY, number)
    assert found is not None
    assert longest / 2 <= found <= longest
    assert pause(BUSY, 4) is None


@pytest.mark.parametrize(
    ("outcome", "read", "change"),
    [
        (httpx.Response(200), False, False),
        (httpx.Response(404), False, False),
        (httpx.Response(500), False, False),
        (httpx.Response(504), False, False),
        (httpx.Response(503), True, False),
        (httpx.Response(429), True, True),
        (httpx.ConnectError("refused"), True, True),
        (httpx.ConnectTimeout("timed out"), True, True),
        (httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] certificate"), False, False),
        (httpx.ReadTimeout("timed out"), True, False),
        (httpx.ReadError("reset"), True, False),
        (httpx.RemoteProtocolError("disconnected"), True, False),
        (httpx.UnsupportedProtocol("gopher"), False, False),
    ],
)
def test_a_change_is_repeated_only_where_it_was_not_made(
    outcome: Outcome, read: bool, change: bool
) -> None:
    assert (pause(outcome) is not None) == read
    assert (pause(outcome, repeatable=False) is not None) == change


def test_a_gate_says_how_long_to_wait() -> None:
    def after(text: str) -> float | None:
        return pause(httpx.Response(503, headers={"Retry-After": text.encode()}))

    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=20), usegmt=True)
    assert after("7") == 7.0
    assert 17 < (after(soon) or 0) <= 20
    assert after("31") is None
    for nonsense in ("", "soon", "-1", "٣", "1e9"):
        assert 0.5 <= (after(nonsense) or 0) <= 1.0
