"""An OTLP receiver over HTTP: keeps the spans that it is sent, decoded by the official protobuf."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


@dataclass
class ReceivedSpan:
    """A span, with the service that sent it."""

    name: str
    trace: str
    id: str
    parent: str
    kind: int
    failed: bool
    service: str
    attributes: dict[str, Any]


@dataclass
class Receiver:
    """What was received."""

    url: str
    spans: list[ReceivedSpan] = field(default_factory=list)
    raw: bytes = b""

    def named(self, name: str) -> list[ReceivedSpan]:
        """The spans of a name."""
        return [span for span in tuple(self.spans) if span.name == name]


def _value(value: Any) -> Any:
    return getattr(value, value.WhichOneof("value"))


def _read(receiver: Receiver, body: bytes) -> None:
    request = ExportTraceServiceRequest()
    request.ParseFromString(body)
    receiver.raw += body
    for resource in request.resource_spans:
        about = {one.key: _value(one.value) for one in resource.resource.attributes}
        for scope in resource.scope_spans:
            for span in scope.spans:
                receiver.spans.append(
                    ReceivedSpan(
                        span.name,
                        span.trace_id.hex(),
                        span.span_id.hex(),
                        span.parent_span_id.hex(),
                        span.kind,
                        span.status.code == 2,
                        about["service.name"],
                        {one.key: _value(one.value) for one in span.attributes},
                    )
                )


@contextmanager
def otlp_receiver() -> Iterator[Receiver]:
    """A receiver on a free port; ``url`` is its endpoint."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            assert self.path == "/v1/traces"
            _read(receiver, body)
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver = Receiver(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
