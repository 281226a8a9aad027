"""Takes Triton's place: same options, same protocol, and answers that it knows from the program."""

from __future__ import annotations

import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from network import Network, packed

FAULT = os.environ.get("STAND_IN_FAULT", "")
OPTIONS = dict(option[2:].split("=", 1) for option in sys.argv[1:])
KNOWN = Network(0, 64)
ANSWERS = dict(zip(map(packed, KNOWN.questions), map(packed, KNOWN.answers), strict=True))
LENGTH = "Inference-Header-Content-Length"
READY_AT = time.monotonic() + 0.5


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/v2":
            self._answer(200, json.dumps({"name": "triton", "version": "2.42.0"}).encode())
        else:
            ready = self.path == "/v2/models/canary/ready" and time.monotonic() > READY_AT
            self._answer(200 if ready else 400, b"")

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        head, body = content[: int(self.headers[LENGTH])], content[int(self.headers[LENGTH]) :]
        (given,) = json.loads(head)["inputs"]
        assert given["shape"] == [1, 64]
        assert given["parameters"] == {"binary_data_size": len(body)}
        if FAULT == "refuses":
            self._answer(500, b'{"error": "out of memory"}')
            return
        found = ANSWERS[body]
        if FAULT == "rounds":
            found = found[:-1] + bytes([found[-1] ^ 1])
        said = json.dumps({"outputs": [{"name": "y", "datatype": "FP32", "shape": [1, 64]}]})
        self._answer(200, said.encode() + found, {LENGTH: str(len(said))})

    def _answer(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


def main() -> None:
    with open(os.path.join(OPTIONS["model-repository"], "canary", "config.pbtxt")) as file:
        assert "KIND_CPU" in file.read()
    print("I1121 started HTTPService", flush=True)
    if FAULT == "dies":
        sys.exit(1)
    address = OPTIONS["http-address"], int(OPTIONS["http-port"])
    ThreadingHTTPServer(address, Handler).serve_forever()


main()
