"""How often, and after how long, a request to an API server is made again."""

from __future__ import annotations

from typing import Any

import pytest

from compatgate.errors import NotFound
from compatgate.kit.kubernetes import ObjectMissing, ServerBusy, error_text, retry_request

PAUSES = (1.0, 2.0)


class Server:
    """Fails as often as it is told, then answers."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.slept: list[float] = []

    def ask(self) -> dict[str, Any]:
        if self.errors:
            raise self.errors.pop(0)
        return {"kind": "Pod"}

    def answer(self) -> dict[str, Any]:
        return retry_request(self.ask, PAUSES, self.slept.append)


def busy(retry_after: float | None = None) -> ServerBusy:
    error = ServerBusy("the cluster failed")
    error.retry_after = retry_after
    return error


def test_a_busy_server_is_asked_again_after_longer_and_longer_pauses() -> None:
    server = Server(busy(), busy())
    assert server.answer() == {"kind": "Pod"}
    assert server.slept == [1.0, 2.0]


def test_when_the_pauses_are_used_up_its_failure_is_told() -> None:
    server = Server(busy(), busy(), busy())
    with pytest.raises(ServerBusy):
        server.answer()
    assert server.slept == [1.0, 2.0]


def test_a_longer_time_that_the_server_asks_for_is_kept() -> None:
    server = Server(busy(7.0))
    server.answer()
    assert server.slept == [7.0]


def test_nobody_waits_for_minutes() -> None:
    server = Server(busy(300.0))
    with pytest.raises(ServerBusy):
        server.answer()
    assert not server.slept


def test_a_refusal_is_not_asked_about_again() -> None:
    server = Server(ObjectMissing("there is none"))
    with pytest.raises(NotFound):
        server.answer()
    assert not server.slept


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"kind": "Status", "message": "no such\\nnode"}', "no such node"),
        (b"bad gateway", "bad gateway"),
        (b"[" * 5000, "[" * 1000),
        (b"\xff", "\ufffd"),
    ],
)
def test_any_body_of_a_refusal_becomes_one_short_line(body: bytes, said: str) -> None:
    assert error_text(body) == said
