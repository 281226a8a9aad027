"""Far clusters: a signed bundle is polled, verified, applied whole, and never goes back."""

from __future__ import annotations

import base64
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from attest_keys import new_key, private_pem, public_pem
from serving import Server, start, wait_for_url, with_examples

Command = Callable[..., tuple[int, str, str]]
SPEC = {"targets": ["*"], "components": {"cuda": "12.4.*"}, "status": "candidate"}
ASK = ("--target", "prod-a100", "--stack", "cuda=12.1,cudnn=9.1.0,torch=2.4.1,nccl=2.20.5")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with gate.pem and gate.pub, and the key pair of somebody else."""
    folder = tmp_path_factory.mktemp("keys")
    for name in ("gate", "other"):
        key = new_key("p256" if name == "gate" else "ed25519")
        (folder / f"{name}.pem").touch(mode=0o600)
        (folder / f"{name}.pem").write_bytes(private_pem(key))
        (folder / f"{name}.pub").write_bytes(public_pem(key))
    return folder


@pytest.fixture(scope="module")
def gate_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the gate keeps its database."""
    return tmp_path_factory.mktemp("gate")


@pytest.fixture(scope="module")
def gate(gate_folder: Path, keys: Path) -> Iterator[Server]:
    """A running gate that signs, for all tests of this file."""
    options = ["--signing-key", str(keys / "gate.pem")]
    server = start(gate_folder, with_examples(gate_folder, options), False, {})
    wait_for_url(server)
    yield server
    server.kill()


class _Far:
    """A far cluster: its file, and the poll."""

    def __init__(self, command: Command, keys: Path, folder: Path) -> None:
        self._command = command
        self.key = str(keys / "gate.pub")
        self.file = folder / "far.bundle"

    def pull(self, server: Any, *options: str) -> tuple[int, Any, str]:
        url = f"http://{server.host}:{server.port}"
        words = ("bundle", "pull", url, "--to", str(self.file), "--key", self.key)
        status, out, err = self._command(*words, "--format", "json", *options)
        return status, json.loads(out) if out else None, err


@pytest.fixture
def far(command: Command, keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _Far:
    monkeypatch.delenv("COMPATGATE_TOKEN", raising=False)
    return _Far(command, keys, tmp_path)


def _change(gate: Server) -> int:
    """Make a revision of the matrix, and return its number."""
    entry = {"metadata": {"name": f"made-{uuid4().hex}"}, "spec": SPEC, "reason": "to see"}
    answer = gate.ask("POST", "/api/v1/entries", entry, gate.bearer)
    assert answer.status == 201, answer.body
    return int(answer.json()["revision"])


def test_a_new_bundle_is_applied_and_an_old_one_is_confirmed(gate: Server, far: _Far) -> None:
    number = _change(gate)
    assert far.pull(gate)[:2] == (0, {"revision": number, "evidence": 0, "changed": True})
    assert far.file.stat().st_mode & 0o777 == 0o600
    first = far.file.read_bytes()
    confirmed = far.file.stat().st_mtime_ns
    assert far.pull(gate)[1] == {"revision": number, "evidence": 0, "changed": False}
    assert far.file.stat().st_mtime_ns > confirmed
    assert far.file.read_bytes() == first
    assert _change(gate) == number + 1
    assert far.pull(gate)[1] == {"revision": number + 1, "evidence": 0, "changed": True}
    assert [path.name for path in far.file.parent.glob(".far*")] == []


def test_a_bundle_decides_as_its_gate_does(gate: Server, far: _Far, command: Command) -> None:
    far.pull(gate)
    stack = {"cuda": "12.1", "cudnn": "9.1.0", "torch": "2.4.1", "nccl": "2.20.5"}
    asked = gate.gate(stack).json()
    bundle = ("--bundle", str(far.file), "--key", far.key)
    out = command("check", *ASK, *bundle, "--format", "json")[1]
    assert json.loads(out)["id"] == asked["id"]


def test_a_poll_without_news_is_answered_from_memory(gate: Server) -> None:
    first = gate.ask("GET", "/api/v1/bundle", headers={"Accept-Encoding": "gzip"})
    plain = gate.ask("GET", "/api/v1/bundle")
    assert (first.status, plain.status) == (200, 200)
    assert first.headers["Content-Encoding"] == "gzip"
    assert len(first.body) < len(plain.body)
    for answer in (first, plain):
        again = gate.ask("GET", "/api/v1/bundle", headers={"If-None-Match": answer.headers["ETag"]})
        assert (again.status, again.body) == (304, b"")
    _change(gate)
    stale = {"If-None-Match": plain.headers["ETag"]}
    assert gate.ask("GET", "/api/v1/bundle", headers=stale).status == 200


def test_a_gate_without_a_key_has_no_bundle_to_give(serve: Any, far: _Far) -> None:
    server = serve()
    assert server.ask("GET", "/api/v1/bundle").status == 409
    status, _, err = far.pull(server)
    assert status == 2
    assert "--signing-key" in err
    assert not far.file.exists()


def test_the_bundle_needs_the_scope_read(serve: Any, keys: Path, far: _Far) -> None:
    server = serve("--signing-key", str(keys / "gate.pem"), "--anonymous", "none")
    assert server.ask("GET", "/api/v1/bundle").status == 401
    assert far.pull(server)[0] != 0
    assert far.pull(server, "--token", server.token)[0] == 0


class _Stand:
    """Somebody between gate and cluster, who answers what he wants."""

    def __init__(self) -> None:
        self.body = b""
        stand = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(stand.body)))
                self.end_headers()
                self.wfile.write(stand.body)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.host, self.port = "127.0.0.1", self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()


@pytest.fixture
def stand() -> Iterator[_Stand]:
    made = _Stand()
    yield made
    made.server.shutdown()
    made.server.server_close()


def _tampered(content: bytes) -> bytes:
    import hashlib

    envelope = json.loads(content)
    payload = base64.b64decode(envelope["payload"]).replace(b"candidate", b"blessed  ")
    envelope["payload"] = base64.b64encode(payload).decode()
    envelope["sha256"] = hashlib.sha256(payload).hexdigest()
    return json.dumps(envelope).encode()


def _unsigned(content: bytes) -> bytes:
    return json.dumps({**json.loads(content), "signatures": []}).encode()


def _of_another_type(content: bytes) -> bytes:
    return json.dumps({**json.loads(content), "payloadType": "text/plain"}).encode()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_tampered, "is invalid: the bundle was changed"),
        (_unsigned, "is not signed"),
        (_of_another_type, "is not a bundle: it holds text/plain"),
        (lambda content: content[:-100], "is not a bundle, or is truncated"),
        (lambda _: b"{}", "is not a bundle"),
        (lambda c: c.replace(b'"keyid":"', b'"keyid":"0'), "which is not trusted"),
    ],
)
def test_an_untrusted_bundle_is_refused_and_the_file_stays(
    gate: Server, far: _Far, stand: _Stand, change: Callable[[bytes], bytes], said: str
) -> None:
    assert far.pull(gate)[0] == 0
    before = far.file.read_bytes()
    _change(gate)
    stand.body = change(gate.ask("GET", "/api/v1/bundle").body)
    status, _, err = far.pull(stand)
    assert (status, said in err) == (2, True), err
    assert far.file.read_bytes() == before


def test_an_older_bundle_is_refused_until_the_operator_allows_it(
    gate: Server, far: _Far, stand: _Stand
) -> None:
    number = _change(gate)
    stand.body = gate.ask("GET", "/api/v1/bundle").body
    _change(gate)
    assert far.pull(gate)[1]["revision"] == number + 1
    status, _, err = far.pull(stand)
    assert status == 2
    assert f"is older (revision {number}, evidence 0, issue" in err
    allowed = far.pull(stand, "--allow-older")[1]
    assert allowed == {"revision": number, "evidence": 0, "changed": True}


def test_check_and_show_refuse_what_another_key_signed(
    gate: Server, far: _Far, keys: Path, command: Command, tmp_path: Path
) -> None:
    far.pull(gate)
    other = str(keys / "other.pub")
    status, _, err = command("check", *ASK, "--bundle", str(far.file), "--key", other)
    assert (status, "which is not trusted" in err) == (2, True)
    # a refused bundle is no reason to fail open
    words = ("check", *ASK, "--bundle", str(far.file), "--key", other, "--fail-open")
    assert command(*words)[0] == 2
    both = ("--key", other, "--key", far.key)
    assert command("check", *ASK, "--bundle", str(far.file), *both)[0] == 0
    shown = command("bundle", "show", str(far.file), "--key", far.key, "--format", "json")[1]
    assert json.loads(shown)["verified"] == json.loads(shown)["signed_by"][0]
    assert command("bundle", "show", str(far.file), "--key", other)[0] == 2
    assert command("check", *ASK, "--key", other)[0] == 2


def test_a_bundle_that_nobody_confirmed_for_long_decides_nothing(
    gate: Server, far: _Far, command: Command
) -> None:
    far.pull(gate)
    words = ("check", *ASK, "--bundle", str(far.file), "--max-stale", "6h")
    assert command(*words)[0] == 0
    long_ago = time.time() - 7 * 3600
    os.utime(far.file, (long_ago, long_ago))
    status, _, err = command(*words)
    assert (status, "last confirmed 7 h ago" in err) == (3, True)
    far.pull(gate)
    assert command(*words)[0] == 0
    assert command(*words[:-1], "soon")[0] == 2


def test_an_exported_bundle_is_signed_and_verified(
    gate: Server, gate_folder: Path, command: Command, keys: Path, tmp_path: Path
) -> None:
    database, file = str(gate_folder / "gate.db"), str(tmp_path / "own.bundle")
    export = ("bundle", "export", "--database", database, "-o", file)
    assert command(*export)[0] == 0
    status, _, err = command("bundle", "show", file, "--key", str(keys / "gate.pub"))
    assert (status, "is not signed" in err) == (2, True)
    assert command(*export, "--sign", str(keys / "gate.pem"))[0] == 0
    assert command("bundle", "show", file, "--key", str(keys / "gate.pub"))[0] == 0
    assert command("check", *ASK, "--bundle", file, "--key", str(keys / "gate.pub"))[0] == 0
    assert command(*export, "--sign", str(keys / "gate.pub"))[0] == 2
