"""The service starts, says where it is, keeps what it is told, and refuses to start on nonsense."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compatgate.kit.database.database import Database
from compatgate.service.app import open_rooms

STACK = {"cuda": "12.4", "arch": ["sm_80"]}
POOL = {"driver": "535.104.05", "gpu": "A100-SXM4-80GB"}


def test_the_first_line_is_the_url_and_a_curl_to_try_follows(server: Any) -> None:
    assert server.output[0] == f"compatgate is serving on http://127.0.0.1:{server.port}"
    if shutil.which("curl") is None:
        pytest.skip("no curl")
    while not server.output[-1].endswith("}'"):
        time.sleep(0.01)
    assert server.output[1] == f"its pages: http://127.0.0.1:{server.port}/ui/"
    command = "\n".join(server.output[3:])
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=30)
    assert '"verdict":' in done.stdout, done.stderr


def test_the_examples_are_imported_at_the_first_start_only(serve: Any) -> None:
    first = serve()
    assert first.ask("GET", "/readyz").json()["revision"] == 1
    assert first.token
    assert first.stop() == 0
    again = serve()
    assert again.ask("GET", "/readyz").json()["revision"] == 1
    assert not any("admin token" in line for line in again.log)
    assert any("not imported" in line for line in again.log)


def test_a_restart_keeps_everything(serve: Any) -> None:
    first = serve()
    verdict = first.gate(STACK).json()
    body = {"metadata": {"name": "mine"}, "spec": {"pools": [{"name": "p", **POOL}]}, "reason": "x"}
    assert first.ask("POST", "/api/v1/targets", body, first.bearer).status == 201
    assert first.stop() == 0
    again = serve()
    assert again.ask("GET", f"/api/v1/verdicts/{verdict['id']}").json()["id"] == verdict["id"]
    assert again.ask("GET", "/api/v1/targets/mine").status == 200
    assert again.gate(STACK, target="mine").status == 200
    assert again.ask("GET", "/api/v1/tokens", headers=first.bearer).status == 200


def test_the_database_may_come_from_the_environment(run_serve: Any, tmp_path: Path) -> None:
    server = run_serve(COMPATGATE_DATABASE=str(tmp_path / "elsewhere.db"))
    assert "elsewhere.db" in server.ask("GET", "/readyz").json()["database"]


def test_without_an_option_the_database_is_the_users_own(run_serve: Any, tmp_path: Path) -> None:
    assert str(tmp_path / "data") in run_serve().ask("GET", "/readyz").json()["database"]


def test_on_loopback_reading_and_asking_need_no_token(server: Any) -> None:
    assert server.ask("GET", "/api/v1/targets").status == 200
    assert server.gate(STACK).status == 200
    assert server.ask("DELETE", "/api/v1/targets/prod-a100").status == 401


def test_on_any_other_address_everything_needs_a_token(serve: Any) -> None:
    server = serve("--host", "0.0.0.0")
    assert server.output[0] == f"compatgate is serving on http://0.0.0.0:{server.port}"
    assert server.gate(STACK).status == 401
    assert server.ask("GET", "/api/v1/targets").status == 401
    assert server.ask("GET", "/healthz").status == 200
    assert server.ask("GET", "/api/v1/targets", headers=server.bearer).status == 200
    assert any("Authorization: Bearer" in line for line in server.output)


def test_anonymous_scopes_can_be_chosen(serve: Any) -> None:
    server = serve("--anonymous", "gate")
    assert server.gate(STACK).status == 200
    assert server.ask("GET", "/api/v1/targets").status == 401
    assert not any("warning" in line for line in server.log)


def test_rights_given_to_everybody_are_warned_of(serve: Any) -> None:
    for options in (["--anonymous", "bless"], ["--host", "0.0.0.0", "--anonymous", "read"]):
        server = serve(*options)
        assert any("without a token" in line for line in server.log)
        server.kill()


def test_the_largest_request_can_be_chosen(serve: Any) -> None:
    server = serve("--max-request-size", "1k")
    answer = server.ask("POST", "/api/v1/gate", b" " * 1025)
    assert answer.status == 413
    assert "1024" in answer.json()["hint"]


def test_it_listens_on_ipv6(serve: Any) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 here")
    server = serve("--host", "::1")
    assert server.output[0] == f"compatgate is serving on http://[::1]:{server.port}"
    assert server.gate(STACK).status == 200


def refused(run: Callable[..., Any], *options: str, **env: str) -> str:
    """What a start that fails says; it must exit with status 2 and say it in one line."""
    server = run(*options, ready=False, **env)
    output, log = server.process.communicate(timeout=30)
    assert (server.process.returncode, output) == (2, "")
    assert "Traceback" not in log
    text: str = log
    return text


def one_line(text: str) -> str:
    assert text.startswith("error: ")
    assert text.count("\n") == 1
    return text


def test_a_port_in_use_is_one_line(run_serve: Any, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        database = tmp_path / "untouched.db"
        text = refused(run_serve, "--port", str(port), "--database", str(database))
    assert f"port {port} on 127.0.0.1 is in use" in one_line(text)
    assert not database.exists()


def test_a_second_server_on_the_port_of_another_is_one_line(
    serve: Any, run_serve: Any, tmp_path: Path
) -> None:
    first = serve("--workers", "2")
    options = ("--port", str(first.port), "--database", str(tmp_path / "other.db"))
    assert f"port {first.port} on 127.0.0.1 is in use" in one_line(refused(run_serve, *options))
    assert first.gate(STACK).status == 200


@pytest.mark.parametrize("host", ["no.such.host.invalid", "192.0.2.1"])
def test_a_host_that_is_not_here_is_one_line(run_serve: Any, host: str) -> None:
    assert host in one_line(refused(run_serve, "--host", host))


def test_a_matrix_that_is_not_there_is_one_line(run_serve: Any, tmp_path: Path) -> None:
    text = refused(run_serve, "--matrix", str(tmp_path / "none.yaml"))
    assert "none.yaml" in one_line(text)


def test_a_matrix_with_mistakes_names_each_with_its_line(run_serve: Any, tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text("kind: Target\nmetadata: {name: a}\nspec: {pools: [{name: p, gpu: H9}]}\n")
    text = refused(run_serve, "--matrix", str(path))
    assert f"{path}:3" in text
    text = refused(run_serve, "--matrix", str(path))
    assert "admin token" not in text


@pytest.mark.parametrize(
    ("database", "said"),
    [
        ("/proc/nowhere/gate.db", "/proc/nowhere"),
        ("mysql://localhost/gate", "mysql"),
        ("postgresql://nobody@127.0.0.1:1/gate", "does not answer"),
    ],
)
def test_a_database_that_cannot_be_used_is_one_line(
    run_serve: Any, database: str, said: str
) -> None:
    assert said in one_line(refused(run_serve, "--database", database))


def test_a_file_that_is_no_database_is_one_line(run_serve: Any, tmp_path: Path) -> None:
    path = tmp_path / "text.db"
    path.write_text("not a database, but long enough to look like one\n" * 100)
    assert "text.db" in one_line(refused(run_serve, "--database", str(path)))


def test_facts_that_are_not_there_are_one_line(run_serve: Any, tmp_path: Path) -> None:
    assert "nofacts" in one_line(refused(run_serve, "--facts", str(tmp_path / "nofacts")))


@pytest.mark.postgresql
def test_a_shared_database_without_its_schema_is_refused_with_the_command(
    run_serve: Any, postgresql_server: str
) -> None:
    text = one_line(refused(run_serve, "--database", postgresql_server))
    assert "compatgate db" in text


def test_the_service_runs_on_every_kind_of_database(serve: Any, database_url: str) -> None:
    if database_url.startswith("sqlite"):
        rooms = open_rooms(database_url, overlays=[])
        rooms.close()
    server = serve("--database", database_url, "--workers", "2")
    for number in range(20):
        assert server.gate(STACK, image=f"r/a:{number}").status == 200
    decisions = server.ask("GET", "/api/v1/decisions").json()["items"]
    assert len(decisions) == 20
    assert server.ask("GET", "/api/v1/audit/verify", headers=server.bearer).json()["ok"] is True
    assert server.stop() == 0
    assert Database.open(database_url)


@pytest.mark.parametrize(
    ("proxy", "expected"), [("127.0.0.1", [401] * 4), ("none", [401, 401, 429, 429])]
)
def test_failed_authentications_count_by_the_address_that_a_trusted_proxy_states(
    serve: Any, proxy: str, expected: list[int]
) -> None:
    """A client that no proxy stands for cannot choose another address for each attempt."""
    server = serve("--failed-auth-rate", "2/h", "--trusted-proxy", proxy)
    codes = []
    for number in range(4):
        headers = {"Authorization": "Bearer cg_wrong", "X-Forwarded-For": f"198.51.100.{number}"}
        codes.append(server.ask("POST", "/api/v1/gate", {}, headers).status)
    assert codes == expected
    if proxy == "none":
        wrong = {"Authorization": "Bearer cg_wrong"}
        refused = server.ask("GET", "/api/v1/targets", headers=wrong)
        assert refused.status == 429
        assert 1790 < int(refused.headers["Retry-After"]) <= 1800
    assert server.gate(STACK).status == 200


def test_a_rate_of_requests_can_be_chosen(serve: Any) -> None:
    server = serve("--rate", "3/h")
    assert [server.gate(STACK).status for _ in range(5)] == [200] * 3 + [429] * 2
    assert server.ask("GET", "/healthz").status == 200
    assert server.ask("GET", "/readyz").status == 200
    assert server.ask("GET", "/api/v1/targets", headers=server.bearer).status == 200


def test_whoever_asks_without_a_token_fills_the_database_slowly(serve: Any) -> None:
    """Whatever the way to ask; what is not logged, and what has a token, is not counted."""
    server = serve("--anonymous-rate", "3/h")
    question = {"target": "prod-a100", "stack": STACK}
    ways: list[tuple[str, Any, dict[str, str]]] = [
        ("/api/v1/gate", question, {}),
        ("/api/v1/gate", question, {"Content-Encoding": "identity"}),
        ("/api/v1/gate", {**question, "image": "r.example/new:1"}, {}),
        ("/hooks/generic", question, {}),
    ]
    for _ in range(4):
        assert server.ask("POST", "/api/v1/gate/preview", question).status == 200
    statuses = [server.ask("POST", *way).status for way in (*ways[:3], *ways)]
    assert statuses == [200] * 3 + [429] * 4
    refused = server.ask("POST", "/api/v1/gate", question)
    assert "token" in refused.json()["detail"]
    assert int(refused.headers["Retry-After"]) > 1000
    assert server.ask("GET", "/api/v1/targets").status == 200
    asked = [server.ask("POST", "/api/v1/gate", question, server.bearer) for _ in range(5)]
    assert {answer.status for answer in asked} == {200}
    logged = server.ask("GET", "/api/v1/decisions").json()["items"]
    assert len(logged) == 8


def test_whatever_the_server_writes_is_for_its_user_alone(serve: Any, tmp_path: Path) -> None:
    before = set(tmp_path.rglob("*"))
    server = serve("--workers", "2", TMPDIR=str(tmp_path))
    assert server.gate({"cuda": "12.4"}).status == 200
    made = [path for path in tmp_path.rglob("*") if path not in before]
    assert {"gate.db", "gate.db-wal"} <= {path.name for path in made}
    assert any(path.suffix == ".db" and path.name != "gate.db" for path in made), "figures"
    open_to_others = [path.name for path in made if path.stat().st_mode & 0o077]
    assert [name for name in open_to_others if not name.endswith(".yaml")] == []
