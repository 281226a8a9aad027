"""Limits of failed authentications and of requests: 429 with Retry-After, in bounded memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from flask.testing import FlaskClient

from compatgate.errors import BadInput
from compatgate.kit.http.limits import Rate, RateLimiter, parse_rate, peer_key
from compatgate.service.app import Rooms

Clock = Callable[[float], None]
API = "/api/v1"
ASK = {
    "pool": {"driver": "535.104.05", "gpu": "A100-SXM4-80GB"},
    "stack": {"cuda": "12.4", "arch": ["sm_80", "compute_80"]},
}


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Moves the clock of limits on."""
    now = [1000.0]
    monkeypatch.setattr("compatgate.kit.http.limits.time.monotonic", lambda: now[0])

    def move(seconds: float) -> None:
        now[0] += seconds

    return move


def test_a_burst_is_allowed_and_then_the_rate(later: Clock) -> None:
    limiter = RateLimiter(Rate(10, 60.0))
    assert [limiter.take("a") for _ in range(10)] == [0.0] * 10
    assert limiter.wait("a") == pytest.approx(6.0)
    assert limiter.take("a") == pytest.approx(6.0)
    assert limiter.take("b") == 0.0
    later(6.0)
    assert limiter.take("a") == 0.0
    assert limiter.take("a") > 0.0
    later(3600.0)
    assert [limiter.take("a") for _ in range(11)] == [0.0] * 10 + [pytest.approx(6.0)]


def test_the_keys_are_bounded_and_the_quiet_ones_are_forgotten(later: Clock) -> None:
    limiter = RateLimiter(Rate(1, 60.0), most_keys=100)
    for number in range(5000):
        limiter.take("loud")
        limiter.take(f"peer-{number}")
    assert len(limiter) == 100
    assert limiter.wait("loud") > 0.0
    assert limiter.wait("peer-0") == 0.0


@pytest.mark.parametrize(
    ("text", "rate"), [("100/s", Rate(100, 1.0)), ("30/m", Rate(30, 60.0)), ("1/h", Rate(1, 3600))]
)
def test_a_rate_is_a_number_and_a_period(text: str, rate: Rate) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize("text", ["", "0/s", "10", "10/d", "-1/s", "1.5/s", "10 / s", "10/s\n"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="is not a rate") as caught:
        parse_rate(text, field="--rate")
    assert caught.value.field == "--rate"


@pytest.mark.parametrize(
    ("address", "key"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("x" * 500, "x" * 64),
    ],
)
def test_an_ipv6_host_counts_by_its_network(address: str, key: str) -> None:
    assert peer_key(address) == key


def send(client: FlaskClient, token: str, peer: str = "192.0.2.1", path: str = "/targets") -> Any:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    place = path if path.startswith(("/hooks", "/ui", "/metrics")) else API + path
    return client.get(place, headers=headers, environ_base={"REMOTE_ADDR": peer})


def test_who_fails_to_authenticate_too_often_must_wait(
    make_client: Callable[..., FlaskClient], rooms: Rooms, later: Clock
) -> None:
    client = make_client(anonymous=frozenset({"read"}), failed=Rate(3, 60.0))
    secret = rooms.tokens.create("ci", ["read"], by="t").secret
    assert [send(client, "cg_wrong").status_code for _ in range(4)] == [401, 401, 401, 429]
    refused = send(client, "cg_wrong")
    assert refused.headers["Retry-After"] == "20"
    problem = refused.get_json(force=True)
    assert (problem["status"], problem["type"].rpartition("/")[2]) == (429, "too-many-requests")
    assert send(client, secret).status_code == 429, "not known to this process"
    assert send(client, "cg_wrong", "192.0.2.2").status_code == 401, "another address"
    assert send(client, "").status_code == 200, "nobody fails without a token"
    later(20.0)
    assert send(client, secret).status_code == 200
    assert [send(client, "cg_wrong").status_code for _ in range(3)] == [401, 429, 429]
    assert send(client, secret).status_code == 200, "valid before: others do not lock it out"
    rooms.tokens.revoke("ci", by="t")
    assert send(client, secret).status_code == 401
    assert send(client, secret).status_code == 429


def test_sign_in_hooks_and_metrics_count_failures_too(
    make_client: Callable[..., FlaskClient], later: Clock
) -> None:
    for number, path in enumerate(("/metrics", "/hooks/generic?target=prod-a100", "/ui/targets")):
        client = make_client(anonymous=frozenset(), failed=Rate(2, 60.0))
        peer = f"192.0.2.{number}"
        assert [send(client, "cg_no", peer, path).status_code for _ in range(3)] == [401, 401, 429]
        assert send(client, "cg_no", peer, path).headers["Retry-After"] == "30"


def test_a_caller_has_a_rate_of_requests(
    make_client: Callable[..., FlaskClient], rooms: Rooms, later: Clock
) -> None:
    client = make_client(anonymous=frozenset({"read", "gate"}), rate=Rate(2, 1.0))
    one, two = (rooms.tokens.create(name, ["read"], by="t").secret for name in ("one", "two"))
    assert [send(client, one).status_code for _ in range(3)] == [200, 200, 429]
    assert send(client, one, "192.0.2.9").status_code == 429, "by caller, not by address"
    assert send(client, two).status_code == 200
    assert [send(client, "").status_code for _ in range(3)] == [200, 200, 429]
    assert send(client, "", "192.0.2.9").status_code == 200, "anonymous callers by address"
    refused = send(client, one)
    assert refused.headers["Retry-After"] == "1"
    assert "one sends too many requests" in refused.get_json(force=True)["detail"]
    later(1.0)
    assert send(client, one).status_code == 200


def test_health_and_admission_are_not_limited_by_caller(
    make_client: Callable[..., FlaskClient], later: Clock
) -> None:
    client = make_client(anonymous=frozenset({"read", "gate"}), rate=Rate(1, 60.0))
    review = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}
    review["request"] = {"uid": "u"}  # type: ignore[assignment]
    for _ in range(3):
        assert client.get("/metrics").status_code == 200
        assert client.get("/healthz").status_code == 200
        assert client.post("/hooks/kubernetes/validate", json=review).status_code == 200
    codes = [client.post(f"{API}/gate", json=ASK).status_code for _ in range(2)]
    assert codes == [200, 429]


def test_without_a_limit_nothing_is_counted(make_client: Callable[..., FlaskClient]) -> None:
    client = make_client(anonymous=frozenset())
    began = time.monotonic()
    assert {send(client, "cg_wrong").status_code for _ in range(100)} == {401}
    assert time.monotonic() - began < 60
