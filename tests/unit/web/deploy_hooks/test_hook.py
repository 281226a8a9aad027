"""``compatgate hook``: signing a request, and what is wrong with how it was asked for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from compatgate.cli.main import main
from compatgate.kit.http.signatures import Secret, verify

URL = "https://gate.example/hooks/generic?status=200"


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "ci.key"
    path.write_text("k" * 32 + "\n")
    return path


@pytest.fixture
def body(tmp_path: Path) -> Path:
    path = tmp_path / "question.json"
    path.write_bytes(b'{"target": "prod-a100"}')
    return path


def test_what_it_prints_is_the_header_that_the_gate_takes(
    key: Path, body: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["hook", "sign", "--secret", f"ci={key}", "--url", URL, str(body)]) == 0
    name, _, value = capsys.readouterr().out.strip().partition(": ")
    assert name == "X-Compatgate-Signature"
    at = int(re.match(r"t=(\d+)", value)[1])  # type: ignore[index]
    path = "/hooks/generic?status=200"
    known = (Secret("ci", b"k" * 32),)
    assert verify(known, value, at, "POST", path, body.read_bytes()) == "ci"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"--secret": "ci"}, "--secret"),
        ({"--secret": "ci=/nowhere/x"}, "cannot read /nowhere/x"),
        ({"--url": "gate.example"}, "--url"),
        ({"--url": "https://gate.example"}, "--url"),
        ({"FILE": "/nowhere/body"}, "cannot read '/nowhere/body'"),
    ],
)
def test_a_mistake_is_named(
    key: Path,
    body: Path,
    capsys: pytest.CaptureFixture[str],
    change: dict[str, str],
    said: str,
) -> None:
    given = {"--secret": f"ci={key}", "--url": URL, "FILE": str(body), **change}
    arguments = ["--secret", given["--secret"], "--url", given["--url"], given["FILE"]]
    assert main(["hook", "sign", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_gate_is_not_served_with_a_key_that_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--port", "0", "--database", str(tmp_path / "g.db"), "--hook-secret", "ci=/nowhere"]
    assert main(["serve", *options]) == 2
    assert "--hook-secret ci: cannot read /nowhere" in capsys.readouterr().err
