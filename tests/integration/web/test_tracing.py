"""Traces of a running gate and worker reach a real OTLP receiver; without it nothing is loaded."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from otlp_receiver import Receiver, otlp_receiver
from staging import GOOD, until, write_workload

from compatgate.cli.main import main

STACK = {"cuda": "12.4", "arch": ["sm_80"]}
TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PLANTED = "cg_Pl4ntedPl4ntedPl4ntedPl4nted"
SERVER, INTERNAL, CLIENT = 2, 1, 3


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with otlp_receiver() as running:
        yield running


def _traced(receiver: Receiver) -> dict[str, str]:
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url, "OTEL_BSP_SCHEDULE_DELAY": "100"}


def test_a_request_is_a_part_of_its_callers_trace(serve: Any, receiver: Receiver) -> None:
    server = serve("--registry", "127.0.0.1:1", **_traced(receiver))
    sent = {"traceparent": f"00-{TRACE}-{CALLER}-01", "X-Request-Id": "traced-1"}
    question = {"target": "prod-a100", "stack": STACK}
    verdict = server.ask("POST", "/api/v1/gate", question, sent).json()
    (asked,) = until(lambda: receiver.named("POST ask"))
    assert (asked.trace, asked.parent, asked.kind) == (TRACE, CALLER, SERVER)
    assert asked.service == "compatgate"
    assert asked.attributes["http.response.status_code"] == 200
    assert asked.attributes["compatgate.verdict"] == verdict["verdict"]
    assert asked.attributes["compatgate.target"] == "prod-a100"
    assert asked.attributes["compatgate.request_id"] == "traced-1"
    (batch,) = until(lambda: receiver.named("decisions.write"))
    assert batch.attributes["compatgate.decisions"] == 1

    image = {"target": "prod-a100", "image": "127.0.0.1:1/team/app:1"}
    failed = server.ask("POST", "/api/v1/gate", image, sent | {"Authorization": "Bearer x"})
    assert failed.status == 401
    failed = server.ask("POST", "/api/v1/gate", image, {**sent, **server.bearer})
    assert failed.status >= 500
    (read,) = until(lambda: receiver.named("image.read"))
    assert (read.trace, read.kind, read.failed) == (TRACE, CLIENT, True)
    assert read.attributes["compatgate.image"] == "127.0.0.1:1/team/app:1"
    parents = {span.id: span for span in receiver.named("POST ask")}
    until(lambda: any(span.failed for span in receiver.named("POST ask")))
    parents = {span.id: span for span in receiver.named("POST ask")}
    assert parents[read.parent].failed

    server.ask("GET", f"/api/v1/targets/{PLANTED}?a={PLANTED}", None, {"Cookie": f"a={PLANTED}"})
    server.ask("GET", "/healthz")
    server.stop()  # sends what is left
    assert receiver.named("GET show_target")
    assert not receiver.named("GET healthz")
    assert b"Pl4nted" not in receiver.raw
    assert server.token.encode() not in receiver.raw


def test_the_steps_of_a_canary_run_are_traced(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, hosts = str(tmp_path / "gate.db"), tmp_path / "hosts.toml"
    hosts.write_text('[[host]]\nname = "here"\nexecutor = "process"\nhealth = "none"\n')
    workloads = tmp_path / "workloads"
    write_workload(workloads, "good", GOOD, gpus=0)
    fixed = ["--hosts", str(hosts), "--database", database, "--workloads", str(workloads)]
    command = [sys.executable, "-m", "compatgate", "worker", *fixed, "--once"]
    for name, value in _traced(receiver).items():
        monkeypatch.setenv(name, value)
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    monkeypatch.setenv("COMPATGATE_WORKLOADS", str(workloads))
    asked = ["--suite", "good", "--host", "here", "--stack", "cuda=12.4", "--database", database]
    assert main(["canary", "run", *asked, "--detach"]) == 0
    command += ["--log-format", "json", "--metrics-port", "0"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    said = [json.loads(line)["message"] for line in done.stderr.splitlines()]
    assert any(line.startswith("run ") and "suite good on here" in line for line in said)
    assert any(line.startswith("metrics are at http://127.0.0.1:") for line in said)
    (run,) = until(lambda: receiver.named("canary.run"))
    (step,) = until(lambda: receiver.named("canary.step"))
    (prepared,) = until(lambda: receiver.named("canary.prepare"))
    assert run.service == "compatgate-worker"
    assert {step.parent, prepared.parent} == {run.id}
    assert run.attributes["compatgate.suite"] == "good"
    assert step.attributes["compatgate.step"].startswith("good")


def test_a_gate_that_cannot_send_traces_answers_all_the_same(serve: Any) -> None:
    server = serve(OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:1", OTEL_BSP_SCHEDULE_DELAY="50")
    assert server.gate(STACK).status == 200
    assert server.stop() == 0


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none"},
    ],
)
def test_without_being_asked_for_nothing_is_imported(variables: dict[str, str]) -> None:
    program = (
        "import sys; from compatgate.kit import tracing; import compatgate.web.server;"
        "import compatgate.web.app; tracing.start('x');"
        "assert not tracing.is_on() and tracing.span('a') is tracing.span('b');"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]"
    )
    subprocess.run([sys.executable, "-c", program], check=True, env=variables, timeout=60)


def test_a_protocol_that_is_not_supported_is_named() -> None:
    program = (
        "import logging; logging.basicConfig();"
        "from compatgate.kit import tracing; tracing.start('x'); assert not tracing.is_on()"
    )
    variables = {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        env=variables,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "the protocol 'grpc' is not supported; set http/protobuf" in done.stderr
