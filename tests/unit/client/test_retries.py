"""Whether and when a request is tried again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx
import pytest

from compatgate.client.settings import Outcome, Retries

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
