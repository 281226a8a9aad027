"""The settings of ``compatgate serve``."""

from __future__ import annotations

import argparse
import re
import socket
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from compatgate.cli import serve
from compatgate.cli.serve_settings import ServeSettings
from compatgate.errors import BadInput
from compatgate.kit.cli.parser import Parser
from compatgate.kit.http.limits import Rate
from compatgate.service.access.browser_sessions import SessionLimits
from compatgate.web.server import is_loopback, listen, url_of


def parse(*words: str) -> argparse.Namespace:
    parser = Parser(prog="compatgate serve")
    serve.run.add_arguments(parser)
    return parser.parse_args(words)


def settings(*words: str) -> ServeSettings:
    return ServeSettings(parse(*words))


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with listen("127.0.0.1", 0) as listener:
        yield listener


def test_the_defaults_serve_this_machine_only() -> None:
    args = parse()
    assert (args.host, args.port, args.max_request_size) == ("127.0.0.1", 8080, 1024**2)
    assert (args.matrix, args.facts, args.database, args.anonymous) == ([], None, None, None)


@pytest.mark.parametrize(
    ("text", "size"),
    [("1048576", 1024**2), ("512k", 512 * 1024), ("8m", 8 * 1024**2), ("1G", 1024**3)],
)
def test_a_size_may_have_a_unit(text: str, size: int) -> None:
    assert parse("--max-request-size", text).max_request_size == size


@pytest.mark.parametrize(
    "words",
    [
        ["--port", "x"],
        ["--port", "65536"],
        ["--port", "-1"],
        ["--workers", "0"],
        ["--threads", "9999"],
        ["--max-request-size", "0"],
        ["--max-request-size", "1t"],
        ["--max-request-size", ""],
        ["--log-level", "loud"],
        ["--prot", "1"],
    ],
    ids=" ".join,
)
def test_what_makes_no_sense_is_one_line_and_status_2(words: list[str], capsys: Any) -> None:
    with pytest.raises(SystemExit) as stop:
        parse(*words)
    assert stop.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_scopes_that_do_not_exist_are_named() -> None:
    with pytest.raises(BadInput) as caught:
        serve.run(parse("--anonymous", "read,root"))
    assert (caught.value.field, caught.value.value) == ("--anonymous", "root")


def test_port_0_picks_a_free_one(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    assert port
    assert url_of(listener, "127.0.0.1") == f"http://127.0.0.1:{port}"
    assert url_of(listener, "::1") == f"http://[::1]:{port}"


def test_a_port_in_use_says_so(listener: socket.socket) -> None:
    with pytest.raises(BadInput, match="is in use") as caught:
        listen("127.0.0.1", listener.getsockname()[1])
    assert caught.value.field == "--port"


@pytest.mark.parametrize("host", ["no.such.host.invalid", "256.1.1.1", "a" * 300, "192.0.2.1", ""])
def test_a_host_that_is_not_here_says_so(host: str) -> None:
    with pytest.raises(BadInput) as caught:
        listen(host, 0)
    assert caught.value.field == "--host"


def test_only_loopback_addresses_are_loopback() -> None:
    for host, expected in (
        ("127.0.0.1", True),
        ("127.0.0.9", True),
        ("localhost", True),
        ("0.0.0.0", False),
    ):
        with listen(host, 0) as found:
            assert is_loopback(found) is expected


@pytest.mark.parametrize("variable", [True, False])
def test_answers_before_the_disk_are_for_postgresql_and_said_at_the_start(
    variable: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert serve.read_commit(settings("--database", "postgresql://db/gate")) == "sync"
    assert capsys.readouterr().err == ""
    words = [] if variable else ["--decision-commit", "async"]
    if variable:
        monkeypatch.setenv("COMPATGATE_DECISION_COMMIT", "async")
    assert serve.read_commit(settings("--database", "postgresql://db/gate", *words)) == "async"
    assert "decisions of the last" in capsys.readouterr().err
    with pytest.raises(BadInput, match="async needs PostgreSQL"):
        serve.read_commit(settings("--database", "gate.db", *words))


def test_another_word_for_committing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPATGATE_DECISION_COMMIT", "off")
    with pytest.raises(BadInput, match="one of sync, async") as caught:
        serve.read_commit(settings())
    assert caught.value.field == "COMPATGATE_DECISION_COMMIT"


def test_claims_need_a_way_to_the_cluster_at_the_start(tmp_path: Path) -> None:
    for named in ("in-cluster", str(tmp_path / "none")):
        with pytest.raises(BadInput) as refused:
            serve.read_admission(settings("--read-claims", named))
        assert refused.value.field == "--read-claims"
        assert "the path of a kubeconfig" in refused.value.hint


@pytest.mark.parametrize(
    ("option", "name", "default"),
    [
        ("--failed-auth-rate", "failed_rate", Rate(30, 60.0)),
        ("--anonymous-rate", "anonymous_rate", Rate(18_000, 3600.0)),
        ("--rate", "rate", None),
    ],
)
def test_rates_have_defaults_that_an_option_changes(
    option: str, name: str, default: Rate | None
) -> None:
    assert getattr(settings(), name) == default
    assert getattr(settings(option, "50/s"), name) == Rate(50, 1.0)
    assert getattr(settings(option, "none"), name) is None
    with pytest.raises(BadInput) as caught:
        getattr(settings(option, "fast"), name)
    assert caught.value.field == option


def test_only_named_proxies_state_addresses_of_clients() -> None:
    assert settings().proxies == ("127.0.0.1", "::1")
    given = settings("--trusted-proxy", "10.0.0.0/24,10.1.0.7", "--trusted-proxy", "fd00::/8")
    assert given.proxies == ("10.0.0.0/24", "10.1.0.7", "fd00::/8")
    assert settings("--trusted-proxy", "none").proxies == ()
    for wrong in ("*", "0.0.0.0/0", "::/0", "10.0.0.1/24", "proxy.example"):
        with pytest.raises(BadInput) as caught:
            _ = settings("--trusted-proxy", wrong).proxies
        assert caught.value.field == "--trusted-proxy"


def test_a_session_has_two_ends() -> None:
    hours = timedelta(hours=1)

    def limits(*words: str) -> SessionLimits:
        return serve.read_web(settings(*words), None, local=True).sessions

    assert limits() == SessionLimits(12 * hours, 2 * hours)
    assert limits("--session-lifetime", "1h", "--session-idle", "3h") == SessionLimits(hours, hours)
    with pytest.raises(BadInput, match="too short"):
        limits("--session-idle", "5s")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--bundle-key", "gate.pub"], "--bundle-key: needs --bundle URL"),
        (["--caller-token", "ci=ci.token"], "--caller-token: needs --bundle URL"),
        (["--bundle", "https://gate.example"], "--bundle-key: --bundle needs a trusted key"),
        (
            ["--bundle", "https://gate.example", "--bundle-key", "k", "--database", "gate.db"],
            "--database: cannot be combined with --bundle (a far gate: it has none)",
        ),
        (
            ["--bundle", "https://gate.example", "--bundle-key", "k", "--matrix", "m.yaml"],
            "--matrix: cannot be combined with --bundle",
        ),
    ],
)
def test_options_of_a_far_gate_that_contradict_each_other_are_named(
    words: list[str], says: str
) -> None:
    with pytest.raises(BadInput, match=re.escape(says)):
        serve.check_far(settings(*words))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"--bundle": "gate.example"}, "--bundle: 'gate.example' is not a URL"),
        ({"--bundle-every": "0.1s"}, "--bundle-every: "),
        ({"--bundle-every": "60s"}, "--max-stale: '100s' is too short (at least two polls"),
        ({"--bundle-key": "/missing"}, "--bundle-key: "),
    ],
)
def test_values_of_a_far_gate_that_cannot_be_used_are_named(
    given: dict[str, str], says: str, tmp_path: Path
) -> None:
    usual = {"--bundle": "https://gate.example", "--bundle-every": "30s", "--max-stale": "100s"}
    usual["--state"] = str(tmp_path)
    stated = settings(*(word for pair in {**usual, **given}.items() for word in pair))
    with pytest.raises(BadInput, match=f"^{re.escape(says)}"):
        serve.get_bundle(stated)
