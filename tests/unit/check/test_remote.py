"""Asking a gate over HTTP, on the command line."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from gate_stand_in import StandIn, Told, standing_in

from compatgate.cli.main import main


@pytest.fixture
def gate() -> Iterator[StandIn]:
    with standing_in() as server:
        yield server


@pytest.mark.parametrize("url", ["gate.example", "ftp://gate", "file:///etc/passwd", "http://a b"])
def test_what_is_no_url_is_refused(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--server", url, "--target", "t", "--stack", "cuda=12.4"]) == 2
    assert "--server" in (err := capsys.readouterr().err)
    assert "is not a URL" in err


def test_the_client_is_made_without_what_only_its_own_command_line_needs() -> None:
    code = (
        "import sys; from compatgate.cli.gate import make_client; make_client('http://x');"
        "print({'click', 'pygments'} & set(sys.modules), 'sqlalchemy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set() False\n"


def test_a_refused_connection_is_no_decision(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    assert main(["check", "--server", url, "--target", "t", "--stack", "cuda=12.4"]) == 3
    assert "does not answer" in capsys.readouterr().err


def test_a_silent_server_is_no_decision(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        asked = ["check", "--server", url, "--timeout", "0.2", "--target", "t", "--stack", "cuda=1"]
        assert main(asked) == 3
    assert "timed out" in capsys.readouterr().err


def test_no_decision_exits_with_3_and_fail_open_with_a_warning(
    gate: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    gate.tell(Told(503))
    asked = ["check", "--server", gate.url, "--target", "prod", "--stack", "cuda=12.4"]
    assert main(asked) == 3
    assert capsys.readouterr().err.startswith("error: ")
    assert main([*asked, "--fail-open"]) == 0
    assert "NO DECISION WAS MADE" in capsys.readouterr().err


def test_a_refusal_exits_with_2_even_with_fail_open(gate: StandIn) -> None:
    gate.tell(Told(404, b'{"detail": "there is no target"}'))
    asked = ["check", "--server", gate.url, "--target", "prod", "--stack", "cuda=12.4"]
    assert main([*asked, "--fail-open"]) == 2


def test_the_environment_names_the_server_for_targets(
    gate: StandIn, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COMPATGATE_SERVER", gate.url)
    monkeypatch.setenv("COMPATGATE_TOKEN", "from-environment")
    gate.tell(Told(503))
    assert main(["check", "--target", "prod", "--stack", "cuda=12.4"]) == 3
    assert gate.asked[0].headers["Authorization"] == "Bearer from-environment"


def test_a_described_pool_needs_no_server_even_if_the_environment_names_one(
    gate: StandIn, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COMPATGATE_SERVER", gate.url)
    asked = ["--pool", "driver=580.95.05,gpu=L4", "--stack", "cuda=12.4,arch=sm_89"]
    assert main(["check", *asked]) == 0
    assert gate.asked == []


def test_the_pools_of_a_target_come_from_the_server(
    gate: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    pool = {"name": "a", "gpu": "A100-SXM4-80GB", "driver": "535.104.05", "count": 5}
    gate.tell(Told(body=json.dumps({"spec": {"pools": [pool]}}).encode()))
    assert main(["env", "--target", "prod", "--server", gate.url, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["CONDA_OVERRIDE_CUDA"] == "12.2"
    assert gate.asked[0].path == "/api/v1/targets/prod"


def test_two_places_to_ask_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["check", "--server", "http://x", "--bundle", "b", "--target", "t", "--stack", "cuda=1"]
    assert main(asked) == 2
    assert "--server and --bundle cannot be used together" in capsys.readouterr().err
