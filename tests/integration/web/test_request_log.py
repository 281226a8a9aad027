"""The log of a running service: one JSON object a line, who asked what, and never a secret."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from serving import Server

STACK = {"cuda": "12.4", "arch": ["sm_80"]}
PLANTED = "cg_Pl4ntedPl4ntedPl4ntedPl4nted"
GATE = "/api/v1/gate"
QUESTION = {"target": "prod-a100", "stack": STACK}
REVIEW = {
    "apiVersion": "admission.k8s.io/v1",
    "kind": "AdmissionReview",
    "request": {
        "uid": "u1",
        "operation": "CREATE",
        "namespace": "nowhere",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "object": {
            "metadata": {"name": "p"},
            "spec": {
                "containers": [
                    {
                        "name": "c",
                        "image": "registry.example/a:1",
                        "resources": {"limits": {"nvidia.com/gpu": "1"}},
                    }
                ]
            },
        },
    },
}


def _lines(server: Server) -> list[dict[str, Any]]:
    """The log, but for the first admin token, which is no line of it."""
    return [json.loads(line) for line in server.log if not line.startswith("admin token")]


def _wait(server: Server, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if found := [line for line in _lines(server) if wanted(line)]:
            return found[-1]
        time.sleep(0.05)
    raise AssertionError(f"no such line in {server.log}")


def _of_request(server: Server, number: str) -> dict[str, Any]:
    return _wait(
        server,
        lambda line: line["logger"] == "compatgate.access" and line.get("request_id") == number,
    )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from serving import start, wait_for_url, with_examples

    folder = tmp_path_factory.mktemp("logged")
    options = ["--log-format", "json", "--access-log", "all", "--log-level", "debug"]
    server = start(folder, with_examples(folder, options), False, {})
    wait_for_url(server)
    yield server
    if server.process.poll() is None:
        server.kill()


def test_a_question_is_logged_with_its_decision(server: Server) -> None:
    sent = {**server.bearer, "X-Request-Id": "q-1"}
    answer = server.ask("POST", GATE, QUESTION, sent).json()
    line = _of_request(server, "q-1")
    assert (line["method"], line["route"], line["status"]) == ("POST", "ask", 200)
    assert (line["identity"], line["peer"]) == ("admin", "127.0.0.1")
    assert line["duration_ms"] > 0
    assert (line["verdict"], line["allowed"]) == (answer["verdict"], answer["allowed"])
    assert line["target"] == "prod-a100"
    outcome = answer["verdict"]
    deciding = {one["rule"] for one in answer["findings"] if one["outcome"] == outcome}
    assert set(line["rules"]) == deciding


def test_hooks_pages_and_errors_are_logged_by_route(server: Server) -> None:
    asked: list[tuple[str, str, Any, str, int]] = [
        (
            "POST",
            "/hooks/generic?status=200",
            {"target": "prod-a100", "stack": STACK},
            "ask_generic",
            200,
        ),
        ("POST", "/hooks/kubernetes/validate", REVIEW, "validate_kubernetes", 200),
        ("GET", "/ui/targets/prod-a100", None, "ui.show_target", 200),
        ("GET", "/api/v1/targets/prod-a1000", None, "show_target", 404),
        ("GET", f"/nowhere/{PLANTED}?token={PLANTED}", None, "none", 404),
        ("GET", "/healthz", None, "healthz", 200),
        ("GET", "/readyz", None, "readyz", 200),
    ]
    for number, (method, path, body, route, status) in enumerate(asked):
        server.ask(method, path, body, {"X-Request-Id": f"r-{number}"})
        line = _of_request(server, f"r-{number}")
        assert (line["route"], line["status"], line["identity"]) == (
            route,
            status,
            "-" if route in ("healthz", "none") else "anonymous",
        )
        assert ("error" in line) == (status == 404)
    assert "verdict" not in _of_request(server, "r-1")  # no target matches the pod


def test_a_refused_token_has_a_line_with_its_name_and_reason(server: Server) -> None:
    wanted = {"name": f"ci-old-{time.time_ns()}", "scopes": ["gate"]}
    made = server.ask("POST", "/api/v1/tokens", wanted, server.bearer)
    secret = made.json()["secret"]
    server.ask("DELETE", f"/api/v1/tokens/{wanted['name']}", None, server.bearer)
    time.sleep(1.1)
    sent = {"Authorization": f"Bearer {secret}", "X-Request-Id": "t-1"}
    assert server.ask("POST", GATE, {"target": "prod-a100", "stack": STACK}, sent).status == 401
    line = _wait(server, lambda line: line["logger"] == "compatgate.auth")
    assert line["message"] == f"refused: the token {wanted['name']} was revoked"
    assert (line["reason"], line["token"], line["peer"], line["request_id"]) == (
        "revoked",
        wanted["name"],
        "127.0.0.1",
        "t-1",
    )
    assert secret not in "\n".join(server.log)


def test_no_secret_reaches_the_log(server: Server) -> None:
    basic = base64.b64encode(f"user:{PLANTED}".encode()).decode()
    session = {"Cookie": f"compatgate_session={PLANTED}; other={PLANTED}"}
    bodies: list[Any] = [
        {"target": "prod-a100", "stack": STACK},
        {"target": PLANTED, "stack": STACK},
        {"target": "prod-a100", "stack": STACK, "token": PLANTED},
        {"target": "prod-a100", "stack": STACK, "image": f"https://u:{PLANTED}@127.0.0.1:1/a:1"},
        f"not JSON {PLANTED}".encode(),
    ]
    headers: list[dict[str, str]] = [
        {},
        {"Authorization": f"Bearer {PLANTED}"},
        {"Authorization": f"Basic {basic}"},
        {"Authorization": PLANTED},
        session,
        {"X-Compatgate-Signature": f"t=1,v1={PLANTED}"},
    ]
    for sent in headers:
        for body in bodies:
            for path in (GATE, "/hooks/generic", "/hooks/kubernetes/validate", "/api/v1/tokens"):
                server.ask("POST", f"{path}?token={PLANTED}", body, sent)
                server.ask("POST", path, body, sent)
        for path in ("/ui/", "/ui/tokens", f"/ui/targets/{PLANTED}", "/metrics", "/api/v1/tokens"):
            server.ask("GET", f"{path}?next={quote(PLANTED)}", None, sent)
    form = {**session, "Content-Type": "application/x-www-form-urlencoded"}
    server.ask("POST", "/ui/sign-in", f"token={PLANTED}".encode(), form)
    _wait(server, lambda line: line.get("route") == "ui.sign_in")
    text = "\n".join(server.log)
    assert len(server.log) > 200
    assert PLANTED not in text
    assert "Pl4nted" not in text
    assert basic not in text
    assert text.count(server.token) == 1  # shown to the person who started the service


def test_refused_tokens_cannot_flood_the_log(server: Server) -> None:
    before = sum(line["logger"] == "compatgate.auth" for line in _lines(server))
    for _ in range(100):
        server.ask("GET", "/api/v1/targets", None, {"Authorization": "Bearer cg_wrong"})
    time.sleep(0.2)
    after = sum(line["logger"] == "compatgate.auth" for line in _lines(server))
    assert 0 <= after - before < 60
    text = server.ask("GET", "/metrics").body.decode()
    counted = [
        float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if line.startswith('compatgate_authentication_failures_total{reason="unknown"}')
    ]
    assert counted[0] >= 10  # an address that fails often is refused with 429 after that


def test_the_servers_own_lines_have_the_same_format(server: Server) -> None:
    server.stop()
    assert {"gunicorn.error", "uvicorn.error"} <= {line["logger"] for line in _lines(server)}


def test_a_refused_token_counts_where_no_request_has_a_line(serve: Any) -> None:
    server = serve("--access-log", "off")
    wrong = {"Authorization": "Bearer cg_wrong"}
    assert server.ask("GET", "/api/v1/targets", None, wrong).status == 401
    metrics = server.ask("GET", "/metrics").body.decode()
    assert 'compatgate_authentication_failures_total{reason="unknown"} 1.0' in metrics
    server.stop()
    text = "\n".join(server.log)
    assert "refused: the token is unknown" in text
    assert "compatgate.access" not in text


def test_by_default_only_errors_have_a_line(serve: Any) -> None:
    server = serve()
    assert server.gate(STACK).status == 200
    assert server.ask("GET", "/api/v1/targets/none", None, {"X-Request-Id": "e-1"}).status == 404
    server.stop()
    text = "\n".join(server.log)
    assert "compatgate.access: GET show_target 404" in text
    assert "request_id=e-1" in text
    assert "POST ask" not in text
