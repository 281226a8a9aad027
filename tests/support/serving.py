"""The service as a user runs it: the real command, as a process, on a free port."""

from __future__ import annotations

import http.client
import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from database_template import new_database

from compatgate.catalog.sources import ROOT
from compatgate.resources import matrix_dir

URL_LINE = re.compile(r"^compatgate is serving on https?://(\[?[\w.:]+?\]?):(\d+)$")
_PATIENCE = 30.0
_IMPATIENT = (
    "import sys, compatgate.kit.http.wsgi as wsgi; wsgi.RECEIVE_SECONDS = 1.0;"
    "from compatgate.cli.main import main; sys.exit(main(sys.argv[1:]))"
)


@dataclass
class Answer:
    """What came back."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


@dataclass
class Server:
    """A running ``compatgate serve``."""

    process: subprocess.Popen[str]
    host: str = ""
    port: int = 0
    output: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    _token: str = ""

    @property
    def token(self) -> str:
        """The admin token, which the first start of a gate prints."""
        deadline = time.monotonic() + _PATIENCE
        while not self._token:
            told = re.search(r"admin token[^:]*: (cg_\S+)", "\n".join(self.log))
            self._token = told[1] if told else ""
            assert told or time.monotonic() < deadline, "this start printed no token"
            time.sleep(0 if told else 0.02)
        return self._token

    @token.setter
    def token(self, known: str) -> None:
        self._token = known

    def connect(self) -> http.client.HTTPConnection:
        """A connection that is kept alive."""
        return http.client.HTTPConnection(self.host.strip("[]"), self.port, timeout=_PATIENCE)

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
        connection: http.client.HTTPConnection | None = None,
    ) -> Answer:
        """One request; a body that is not bytes is sent as JSON."""
        sent = dict(headers or {})
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        if body is not None:
            sent.setdefault("Content-Type", "application/json")
        used = connection or self.connect()
        try:
            used.request(method, path, body, sent)
            response = used.getresponse()
            return Answer(response.status, response.headers, response.read())
        finally:
            if connection is None:
                used.close()

    def gate(self, stack: dict[str, Any], **others: Any) -> Answer:
        """Ask the gate about the first target of the examples."""
        question = {"target": "prod-a100", "stack": stack, **others}
        return self.ask("POST", "/api/v1/gate", question)

    @property
    def bearer(self) -> dict[str, str]:
        """The admin token of the first start."""
        return {"Authorization": f"Bearer {self.token}"}

    def send(self, number: int) -> None:
        """Send a signal to the parent process."""
        self.process.send_signal(number)

    def kill(self) -> None:
        """End every process of it at once."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(_PATIENCE)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Stop it gracefully; its exit status."""
        self.send(number)
        return self.process.wait(_PATIENCE)


def start(folder: Path, options: Sequence[str], impatient: bool, env: Mapping[str, str]) -> Server:
    program = ["-c", _IMPATIENT] if impatient else ["-m", "compatgate"]
    arguments = list(options)
    if "--port" not in arguments:
        arguments += ["--port", "0"]
    environment = {
        k: v for k, v in os.environ.items() if not k.startswith("COMPATGATE_") or k == ROOT
    }
    environment |= {
        "XDG_DATA_HOME": str(folder / "data"),
        "XDG_STATE_HOME": str(folder / "state"),
        **env,
    }
    process = subprocess.Popen(
        [sys.executable, *program, "serve", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    return Server(process)


def with_examples(folder: Path, options: Sequence[str]) -> list[str]:
    fixed = ["--matrix", str(matrix_dir() / "examples")]
    if "--database" not in options:
        file = folder / "gate.db"
        if not file.exists() and not Path(f"{file}-state").exists():  # never after a deletion
            new_database(file)
        fixed += ["--database", str(file)]
    return [*fixed, *options]


def wait_for_url(server: Server) -> None:
    """Read what a start prints, up to the URL; go on reading so that no pipe fills."""
    lines: queue.Queue[str] = queue.Queue()
    assert server.process.stdout
    assert server.process.stderr

    def read(stream: Any, kept: list[str], heard: queue.Queue[str] | None) -> None:
        for line in stream:
            kept.append(line.rstrip("\n"))
            if heard is not None:
                heard.put(line.rstrip("\n"))

    for stream, kept, heard in (
        (server.process.stdout, server.output, lines),
        (server.process.stderr, server.log, None),
    ):
        threading.Thread(target=read, args=(stream, kept, heard), daemon=True).start()
    first = lines.get(timeout=_PATIENCE)
    found = URL_LINE.match(first)
    assert found, f"the first line is {first!r}"
    server.host, server.port = found[1], int(found[2])
