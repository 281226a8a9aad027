"""What a client sends, and what it makes of answers that no gate should give."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest
from gate_stand_in import StandIn, Told

from compatgate import version
from compatgate.client import Client, Retries
from compatgate.client.operations import Operations
from compatgate.client.request import Request
from compatgate.errors import (
    BadInput,
    ManyProblems,
    NotFound,
    RegistryTimeout,
    Unauthorized,
    Unavailable,
)

PROBLEM = (
    b'{"type": "https://compatgate.dev/problems/not-found", "title": "Not found", "status": 404,'
    b' "detail": "name: there is no rule (did you mean CG101?)", "field": "name", "value": "CG1",'
    b' "hint": "did you mean CG101?"}'
)
RULE = b'{"id": "CG101", "name": "n", "about_facts": true, "documentation": "d"}'


@pytest.mark.parametrize("suffix", ["", "/", "/api/v1", "/api/v1/"])
def test_a_question_is_posted_with_its_token_and_who_asks(gate: StandIn, suffix: str) -> None:
    with Client(gate.url + suffix, "secret", user_agent="fleet/2") as client:
        request = Operations.ask.request(stack={"cuda": "12.4"}, set={"cudnn": None}).plain()
        assert client.send(request) == {}
    (asked,) = gate.asked
    assert (asked.method, asked.path) == ("POST", "/api/v1/gate")
    assert asked.headers["Authorization"] == "Bearer secret"
    assert asked.headers["Content-Type"] == "application/json"
    assert asked.headers["User-Agent"] == f"fleet/2 compatgate/{version()}"
    assert asked.body == {"stack": {"cuda": "12.4"}, "set": {"cudnn": None}}


def test_the_environment_names_gate_and_token(
    gate: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BadInput, match="COMPATGATE_SERVER"):
        Client()
    monkeypatch.setenv("COMPATGATE_SERVER", gate.url)
    monkeypatch.setenv("COMPATGATE_TOKEN", "from-environment")
    gate.tell(Told(body=RULE))
    with Client() as client:
        assert client.show_rule("CG101").id == "CG101"
    assert gate.asked[0].headers["Authorization"] == "Bearer from-environment"


def test_without_a_token_none_is_sent_and_a_refusal_asks_for_one(gate: StandIn) -> None:
    gate.tell(Told(401, b'{"detail": "this needs a token"}'))
    with Client(gate.url) as client, pytest.raises(Unauthorized, match="COMPATGATE_TOKEN"):
        client.list_tokens().page()
    assert "Authorization" not in gate.asked[0].headers


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"base_url": "gate.example"}, "server"),
        ({"base_url": "ftp://gate"}, "server"),
        ({"base_url": "http://a b"}, "server"),
        ({"base_url": "http://"}, "server"),
        ({"base_url": "http://gate:99999"}, "server"),
        ({"base_url": "http://gate?x=1"}, "server"),
        ({"base_url": "http://[::1"}, "server"),
        ({"token": "two words"}, "token"),
        ({"token": "line\nfeed"}, "token"),
        ({"token": "größe"}, "token"),
        ({"timeout": 0.0}, "timeout"),
        ({"base_url": "https://gate", "verify": "/nowhere/ca.pem"}, "verify"),
        ({"base_url": "https://gate", "verify": __file__}, "verify"),
    ],
)
def test_what_cannot_be_used_is_named(wrong: dict[str, str], field: str) -> None:
    with pytest.raises(BadInput) as refused:
        Client(**{"base_url": "http://gate", **wrong})  # type: ignore[arg-type]
    assert refused.value.field == field


def test_each_of_several_mistakes_keeps_its_place_and_its_hint(
    client: Client, gate: StandIn
) -> None:
    problem = {"problem": "is unknown", "field": "spec.x", "file": "a.yaml", "line": 3}
    body = {"detail": "2 problems", "problems": [{**problem, "hint": "did you mean y?"}, problem]}
    gate.tell(Told(400, json.dumps(body).encode()))
    with pytest.raises(ManyProblems) as refused:
        client.import_matrix("kind: Entry", reason="r")
    first, second = refused.value.problems
    assert (first.hint, second.hint) == ("did you mean y?", "")
    assert (first.field, first.detail) == (
        "spec.x",
        "a.yaml:3: spec.x: is unknown (did you mean y?)",
    )


def test_a_status_without_a_problem_is_an_error_of_its_kind(client: Client, gate: StandIn) -> None:
    gate.tell(Told(400, b"<html>"))
    with pytest.raises(BadInput, match="status 400") as refused:
        client.show_rule("CG101")
    assert type(refused.value) is BadInput


def test_a_refusal_is_raised_with_what_the_problem_says(client: Client, gate: StandIn) -> None:
    gate.tell(Told(404, PROBLEM, {"X-Request-Id": "abc-1"}))
    with pytest.raises(NotFound) as refused:
        client.show_rule("CG1")
    error = refused.value
    assert (error.problem, error.field, error.value) == ("there is no rule", "name", "CG1")
    assert (error.hint, error.status) == ("did you mean CG101?", 404)
    assert error.detail == "name: there is no rule (did you mean CG101?)"
    assert error.__notes__ == ["request abc-1 in the gate's log"]


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"", b"\xff", b"[" * 5000])
def test_an_answer_of_another_service_is_none(client: Client, gate: StandIn, body: bytes) -> None:
    gate.tell(Told(body=body))
    with pytest.raises(Unavailable):
        client.show_rule("CG101")


def test_members_that_only_a_newer_gate_knows_are_left_out(client: Client, gate: StandIn) -> None:
    gate.tell(Told(body=RULE[:-1] + b', "since": {"version": 2}}'))
    assert client.show_rule("CG101").name == "n"
    gate.tell(Told(body=b'{"id": "CG101"}'))
    with pytest.raises(Unavailable, match=r"does not understand.*name"):
        client.show_rule("CG101")


def test_a_redirection_is_not_followed_and_the_token_goes_nowhere_else(
    client: Client, gate: StandIn
) -> None:
    gate.tell(Told(301, b"", {"Location": "https://gate.example/"}))
    with pytest.raises(Unavailable, match=r"301.*https://gate\.example/"):
        client.show_rule("CG101")
    assert len(gate.asked) == 1


@pytest.mark.parametrize("status", [429, 503])
def test_a_read_is_tried_again_when_the_gate_says_not_now(
    client: Client, gate: StandIn, status: int
) -> None:
    gate.tell(Told(status), Told(status, headers={"Retry-After": "0"}), Told(body=RULE))
    assert client.show_rule("CG101").id == "CG101"
    assert len(gate.asked) == 3


def test_it_is_not_tried_for_ever(client: Client, gate: StandIn) -> None:
    gate.tell(Told(503, b'{"detail": "the database does not answer"}'))
    with pytest.raises(Unavailable, match="the database does not answer") as refused:
        client.show_rule("CG101")
    assert refused.value.status == 503
    assert len(gate.asked) == 4


def test_a_gate_that_asks_for_too_long_a_pause_is_not_waited_for(
    client: Client, gate: StandIn
) -> None:
    gate.tell(Told(503, headers={"Retry-After": "3600"}))
    with pytest.raises(Unavailable, match="answered 503"):
        client.show_rule("CG101")
    assert len(gate.asked) == 1


def test_a_change_is_not_repeated_unless_it_was_certainly_not_made(
    client: Client, gate: StandIn
) -> None:
    gate.tell(Told(503))
    with pytest.raises(Unavailable):
        client.submit_runs("smoke")
    assert len(gate.asked) == 1
    gate.tell(Told(429), Told(201, b'{"runs": []}'))
    assert client.submit_runs("smoke").runs == []
    assert len(gate.asked) == 3


def test_an_answer_that_breaks_off_is_asked_for_again(client: Client, gate: StandIn) -> None:
    gate.tell(Told(body=RULE, cut=True), Told(body=RULE))
    assert client.show_rule("CG101").id == "CG101"
    gate.tell(Told(body=RULE, cut=True))
    with pytest.raises(Unavailable, match="does not answer"):
        client.cancel_run("run_1")


def test_a_refused_connection_is_no_answer() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    retries = Retries(most=1, first_s=0.001)
    with Client(url, retries=retries) as client, pytest.raises(Unavailable, match="not answer"):
        client.show_rule("CG101")


def test_a_silent_server_is_no_answer() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        client = Client(url, timeout=0.1, retries=0)
        with client, pytest.raises(RegistryTimeout, match="timed out"):
            client.show_rule("CG101")


def test_what_is_known_already_is_not_sent_again(client: Client, gate: StandIn) -> None:
    gate.tell(Told(body=RULE, headers={"ETag": '"x1"', "X-Request-Id": "n-1"}))
    request = Operations.show_rule.request("CG101")
    first = client.exchange(request)
    assert (first.value.id, first.etag, first.request_id) == ("CG101", '"x1"', "n-1")
    gate.tell(Told(304, b"", {"ETag": '"x1"'}))
    again = client.exchange(request, if_none_match=first.etag)
    assert (again.not_modified, again.etag) == (True, '"x1"')
    assert gate.asked[1].headers["If-None-Match"] == '"x1"'


def test_a_proxy_that_cannot_be_used_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "gopher://127.0.0.1:1")
    with pytest.raises(BadInput, match="proxy"):
        Client("http://gate.example")


def text(path: str, answer: type[Any]) -> Request[Any]:
    return Request(method="GET", path=f"/api/v1{path}", answer=answer, accept="*/*")


def test_an_answer_that_is_no_json_is_given_as_it_is(client: Client, gate: StandIn) -> None:
    gate.tell(Told(body="<svg>ü</svg>".encode()))
    assert client.send(text("/badge/lab.svg", bytes)) == b"<svg>\xc3\xbc</svg>"
    assert client.send(text("/text", str)) == "<svg>ü</svg>"
    assert [asked.path for asked in gate.asked] == ["/api/v1/badge/lab.svg", "/api/v1/text"]
    gate.tell(Told(body=b"\xff"))
    with pytest.raises(Unavailable):
        client.send(text("/text", str))
