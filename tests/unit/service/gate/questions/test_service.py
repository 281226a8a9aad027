"""Health, figures and headers."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from flask.testing import FlaskClient

from compatgate.errors import Unavailable
from compatgate.service.app import Rooms
from compatgate.service.gate.questions import readiness

QUESTION = {"target": "prod-a100", "stack": {"cuda": "12.4"}}


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that others keep busy is no finding here."""
    monkeypatch.setattr(readiness, "DEADLINE_SECONDS", 60.0)


def test_health_needs_no_token(make_client: Callable[..., FlaskClient]) -> None:
    client = make_client(anonymous=frozenset())
    assert client.get("/healthz").get_json() == {"status": "alive"}
    assert client.get("/readyz").get_json() == {"status": "ready"}
    assert client.get("/").status_code == 200


def test_readers_are_told_what_the_gate_rests_on(client: FlaskClient, rooms: Rooms) -> None:
    ready = client.get("/readyz").get_json()
    assert ready["revision"] == 3
    assert ready["facts"] == rooms.gate.facts.digest


def test_a_gate_without_its_database_is_not_ready_and_says_so(
    client: FlaskClient, rooms: Rooms, monkeypatch: pytest.MonkeyPatch
) -> None:
    def down() -> None:
        raise Unavailable("the database does not answer")

    monkeypatch.setattr(rooms.gate, "check_ready", down)
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.mimetype == "application/problem+json"
    assert client.get("/healthz").status_code == 200


def test_figures_count_decisions_and_requests(client: FlaskClient, rooms: Rooms) -> None:
    for kind in ("application/json", "application/json; charset=utf-8"):
        client.post("/api/v1/gate", json=QUESTION, content_type=kind)
    client.get("/api/v1/targets/none")
    text = client.get("/metrics").text
    decided = re.findall(r'compatgate_decisions_total\{.*mode="enforce".*\} (.+)', text)
    assert sum(map(float, decided)) == 2
    assert "compatgate_decision_seconds_count 2.0" in text
    ask = 'compatgate_http_requests_total{method="POST",route="ask",status="200"} 2.0'
    assert ask in text
    assert 'route="show_target",status="404"} 1.0' in text
    assert "compatgate_matrix_revision 3.0" in text
    assert f'compatgate_facts_info{{digest="{rooms.gate.facts.digest}"}} 1.0' in text


def test_figures_are_for_readers(make_client: Callable[..., FlaskClient]) -> None:
    assert make_client(anonymous=frozenset()).get("/metrics").status_code == 401


def test_every_answer_has_an_id_and_is_harmless_to_browsers(client: FlaskClient) -> None:
    def answers() -> list[Any]:
        return [
            client.get("/api/v1/targets"),
            client.post("/api/v1/gate", json=QUESTION),
            client.post("/api/v1/gate", json={}),
            client.get("/nowhere"),
            client.get("/metrics"),
        ]

    for answer in answers():
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert "Server" not in answer.headers
    ids = [answer.headers["X-Request-Id"] for answer in answers()]
    assert len(set(ids)) == len(ids)


def test_the_clients_own_request_id_is_kept_when_harmless(client: FlaskClient) -> None:
    kept = client.get("/healthz", headers={"X-Request-Id": "ci-4711"})
    assert kept.headers["X-Request-Id"] == "ci-4711"
    odd = client.get("/healthz", headers={"X-Request-Id": "a b\tc"})
    assert odd.headers["X-Request-Id"] != "a b\tc"


def test_reads_may_be_kept_but_are_asked_for_again(client: FlaskClient) -> None:
    assert client.get("/api/v1/targets").headers["Cache-Control"] == "private, no-cache"
    assert client.post("/api/v1/gate", json=QUESTION).headers["Cache-Control"] == "no-store"


def test_methods_that_a_route_has_not_name_those_it_has(client: FlaskClient) -> None:
    assert client.put("/api/v1/gate", json={}).headers["Allow"] == "POST"
    assert client.post("/api/v1/rules", json={}).headers["Allow"] == "GET, HEAD"


def test_a_head_is_a_get_without_a_body(client: FlaskClient) -> None:
    answer = client.head("/api/v1/targets/prod-a100")
    assert (answer.status_code, answer.data) == (200, b"")
    assert answer.headers["ETag"] == '"r1"'


def test_a_figure_that_cannot_be_counted_withholds_no_answer(
    client: FlaskClient, rooms: Rooms, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError("no room")

    monkeypatch.setattr("prometheus_client.Histogram.observe", full)
    monkeypatch.setattr("prometheus_client.Counter.inc", full)
    assert client.post("/api/v1/gate", json=QUESTION).status_code == 200
    assert len(rooms.decisions.list_decisions().items) == 1
