"""From a candidate to a blessed entry and back, through REST and the command line.

The workers' side is the queue on the server's own database; what they measured is given as data.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from canary_runs import GPU, MEASURED, evidence, host

from compatgate.canary.engine import Lease
from compatgate.service.app import Rooms, open_rooms

API = "/api/v1"
OLD, NEW = "535.183.01", "550.54.15"
IMAGE = ("--image", "registry.example/team/app:1")
STACK = "cuda=12.4,torch=2.4.1+cu124,arch=sm_80"
Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def server(serve: Callable[..., Any]) -> Any:
    return serve()


@pytest.fixture
def worker(server: Any, tmp_path: Path) -> Iterator[Rooms]:
    """The database as a worker process opens it."""
    rooms = open_rooms(str(tmp_path / "gate.db"), overlays=[])
    rooms.runs.queue.register("w1", [host(driver=None)])
    yield rooms
    rooms.close()


@pytest.fixture
def cli(server: Any, command: Cli) -> Cli:
    place = ("--server", f"http://{server.host}:{server.port}", "--token", server.token)
    return lambda *arguments: command(*arguments, *place)


def target(driver: str) -> dict[str, Any]:
    policy = {"requireEntry": True, "canary": {"require": True, "promote": "automatic"}}
    pools = [{"name": "a", "gpu": GPU, "driver": driver}]
    return {"metadata": {"name": "lab"}, "spec": {"pools": pools, "policy": policy}, "reason": "t"}


def entry() -> dict[str, Any]:
    components = {"driver": ">=535.104.05", "cuda": "12.4.*", "torch": "~=2.4.0"}
    spec = {"targets": ["lab"], "components": components, "status": "candidate"}
    return {"metadata": {"name": "torch24"}, "spec": spec, "reason": "to be tried"}


class Server:
    """Questions of this story."""

    def __init__(self, server: Any) -> None:
        self._server = server

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        answer = self._server.ask(method, f"{API}{path}", body, self._server.bearer)
        assert answer.status in (200, 201), answer.body
        return answer.json()

    def verdict(self) -> tuple[bool, set[str]]:
        stack = {"cuda": "12.4", "torch": "2.4.1+cu124", "arch": ["sm_80"]}
        found = self.ask("POST", "/gate", {"target": "lab", "stack": stack})
        return found["allowed"], {f["rule"] for f in found["findings"] if f["rule"][:4] == "CG81"}

    def settled(self, expected: tuple[bool, set[str]]) -> None:
        """The server looks for evidence of other processes several times a second."""
        deadline = time.monotonic() + 10
        while self.verdict() != expected:
            assert time.monotonic() < deadline, self.verdict()
            time.sleep(0.1)


def work(worker: Rooms, outcome: Any, driver: str) -> None:
    """Take one run, print a little, and end it."""
    lease: Lease | None = None
    deadline = time.monotonic() + 20
    while lease is None:
        assert time.monotonic() < deadline
        lease = worker.runs.queue.lease("w1", [host(driver=None)])
    queue = worker.runs.queue
    queue.enter(lease, "running")
    queue.write(lease, "gemm-0", b"measuring\n")
    queue.say(lease, "gemm", 0.5)
    time.sleep(1.5)
    measured = {"components": MEASURED, "driver": driver}
    queue.finish(lease, outcome, f"it {outcome}", evidence(lease, outcome, **measured))


def test_a_candidate_is_blessed_goes_stale_and_fails(server: Any, worker: Rooms, cli: Cli) -> None:
    gate = Server(server)
    gate.ask("POST", "/targets", target(OLD))
    gate.ask("POST", "/entries", entry())
    allowed, rules = gate.verdict()
    assert (allowed, rules) == (False, {"CG811"})
    ask = ("canary", "run", "--suite", "smoke", "--target", "lab", "--stack", STACK, *IMAGE)

    thread = threading.Thread(target=work, args=(worker, "passed", OLD))
    thread.start()
    status, out, err = cli(*ask, "--format", "json")
    thread.join()
    assert status == 0, err
    (run,) = json.loads(out)
    assert (run["state"], run["on_host"]) == ("passed", "a100-1")
    assert f"{run['id']} running on a100-1: gemm" in err
    gate.settled((True, set()))
    assert gate.ask("GET", "/entries/torch24")["spec"]["status"] == "blessed"
    newest = gate.ask("GET", "/revisions?limit=1")["items"][0]
    assert newest["author"] == "canary"
    assert run["id"] in newest["reason"]

    gate.ask("PUT", "/targets/lab", target(NEW))
    gate.settled((False, {"CG812"}))

    thread = threading.Thread(target=work, args=(worker, "failed", NEW))
    thread.start()
    status, out, err = cli(*ask)
    thread.join()
    assert status == 1, err
    assert "failed" in out
    gate.settled((False, {"CG813"}))
    (warning,) = gate.ask("GET", "/entries/torch24")["warnings"]
    status, out, _ = cli("canary", "show", warning["run"])
    assert (status, "it failed" in out) == (0, True)
    assert [e["outcome"] for e in gate.ask("GET", "/evidence")["items"]] == [
        "failed",
        "passed",
    ]
    assert gate.ask("GET", "/audit/verify")["ok"]


def test_a_log_is_followed_from_the_command_line_until_its_run_ends(
    server: Any, worker: Rooms, cli: Cli
) -> None:
    gate = Server(server)
    gate.ask("POST", "/targets", target(OLD))
    status, out, _ = cli("canary", "run", "--suite", "smoke", "--target", "lab", *IMAGE, "--detach")
    assert status == 0
    run_id = next(word for word in out.split() if word.startswith("run_"))
    assert cli("canary", "logs", run_id)[:2] == (0, "")
    thread = threading.Thread(target=work, args=(worker, "failed", OLD))
    thread.start()
    status, out, err = cli("canary", "logs", "-f", run_id)
    thread.join()
    assert (status, out) == (0, "==> gemm-0, attempt 1 <==\nmeasuring\n")
    assert "[failed: it failed]" in err
    assert cli("canary", "logs", run_id, "--step", "gemm-0")[1] == "measuring\n"


def test_a_server_that_stops_does_not_wait_for_who_follows_a_log(
    server: Any, worker: Rooms, cli: Cli
) -> None:
    Server(server).ask("POST", "/targets", target(OLD))
    out = cli("canary", "run", "--suite", "smoke", "--target", "lab", *IMAGE, "--detach")[1]
    run_id = next(word for word in out.split() if word.startswith("run_"))
    connection = server.connect()
    url = f"{API}/runs/{run_id}/logs?follow=true"
    connection.request("GET", url, headers=server.bearer)
    stream = connection.getresponse()
    assert stream.readline() == b"event: state\n"
    began = time.monotonic()
    assert server.stop() == 0
    assert time.monotonic() - began < 10
    assert b"event: end" not in stream.read()


def test_listing_cancelling_and_running_again(server: Any, worker: Rooms, cli: Cli) -> None:
    Server(server).ask("POST", "/targets", target(OLD))
    out = cli("canary", "run", "--suite", "smoke", "--target", "lab", *IMAGE, "--detach")[1]
    run_id = next(word for word in out.split() if word.startswith("run_"))
    assert run_id in cli("canary", "list", "--state", "queued", "--target", "lab")[1]
    assert cli("canary", "rerun", run_id)[0] == 2
    status, out, _ = cli("canary", "cancel", run_id)
    assert (status, "cancelled by admin" in out) == (0, True)
    assert cli("canary", "cancel", run_id)[0] == 2
    assert cli("canary", "list", "--state", "queued", "--limit", "1")[1] == "no runs\n"
    assert "queued" in cli("canary", "rerun", run_id)[1]
    assert "a100-1" in cli("canary", "hosts")[1]
    assert cli("canary", "baselines", "list")[1] == "no baselines\n"
    assert cli("canary", "show", "run_none")[0] == 2


def test_a_cancelled_run_ends_the_waiting_with_its_own_status(
    server: Any, worker: Rooms, cli: Cli
) -> None:
    Server(server).ask("POST", "/targets", target(OLD))

    def cancel() -> None:
        while not (found := worker.runs.list(state="queued").items):
            time.sleep(0.1)
        worker.runs.cancel(found[0].id, by="someone")

    thread = threading.Thread(target=cancel)
    thread.start()
    status, out, _ = cli("canary", "run", "--suite", "smoke", "--target", "lab", *IMAGE)
    thread.join()
    assert (status, "cancelled by someone" in out) == (3, True)


def test_a_command_survives_a_restart_of_the_gate(
    serve: Callable[..., Any], server: Any, worker: Rooms, cli: Cli
) -> None:
    port, token = server.port, server.token
    Server(server).ask("POST", "/targets", target(OLD))
    ask = ("canary", "run", "--suite", "smoke", "--target", "lab", "--stack", STACK, *IMAGE)
    answers: list[tuple[int, str, str]] = []
    thread = threading.Thread(target=lambda: answers.append(cli(*ask, "--format", "json")))
    thread.start()
    deadline = time.monotonic() + 20
    while not worker.runs.list().items:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    server.kill()
    time.sleep(3)
    again = serve("--port", str(port))
    again.token = token
    work(worker, "passed", OLD)
    thread.join(30)
    ((status, out, err),) = answers
    assert status == 0, err
    assert json.loads(out)[0]["state"] == "passed"
    (run,) = worker.runs.list().items
    assert f"compatgate canary show --wait {run.id}" in err
    assert cli("canary", "show", "--wait", run.id)[0] == 0
