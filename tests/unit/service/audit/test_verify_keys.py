"""Keys that ``compatgate verify`` fetches."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from compatgate.cli.main import main


class _Elsewhere(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(302)
        self.send_header("Location", "http://keys.example/jwks.json")
        self.end_headers()

    def log_message(self, *said: object) -> None:
        """Say nothing."""


@pytest.fixture
def elsewhere() -> Iterator[str]:
    """A server on this machine that leads to one without TLS on another."""
    with HTTPServer(("127.0.0.1", 0), _Elsewhere) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/jwks.json"
        server.shutdown()


def test_a_url_with_a_password_is_refused_and_not_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "verdict.json").write_text("{}")
    url = "https://user:hunter2@gate.example/keys"
    assert main(["verify", str(tmp_path / "verdict.json"), "--jwks", url]) == 2
    assert "hunter2" not in capsys.readouterr().err


def test_a_redirection_leads_to_no_place_that_could_not_have_been_named(
    elsewhere: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "verdict.json").write_text("{}")
    assert main(["verify", str(tmp_path / "verdict.json"), "--jwks", elsewhere]) == 2
    assert "is not an https URL; keys are fetched only over https" in capsys.readouterr().err


def test_a_file_that_is_no_key_is_told_as_such(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "verdict.json").write_text("{}")
    assert main(["verify", str(tmp_path / "verdict.json"), "--key", __file__]) == 2
    assert "--key: holds no public key (PEM, or a JSON Web Key Set)" in capsys.readouterr().err
