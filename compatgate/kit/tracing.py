"""Note what is known of a request, and trace requests, image reads, decisions and canary steps.

``OTEL_*`` variables switch tracing on, as the OpenTelemetry specification names them; without them
nothing is imported. No span has a token, a body, a path or the text of an error.
"""

from __future__ import annotations

import contextvars
import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from msgspec import Struct

from compatgate.resources import install_hint

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span, Tracer

    from compatgate.core.rule import Verdict
    from compatgate.errors import CompatgateError

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_PROTOCOL = "http/protobuf"
_STOP_SECONDS = 3.0
_SERVER_ERROR = 500
_log = logging.getLogger("compatgate.tracing")
_tracer: Tracer | None = None
_provider: TracerProvider | None = None
_NOTHING: AbstractContextManager[None] = nullcontext()
T = TypeVar("T")
SpanKind = Literal["internal", "server", "client"]
NOTE = "compatgate.note"
"""Key of the note in the scope of a request, and in its WSGI environment."""
RequestKind = Literal["question", "hook", "api", "page", "health"]


def is_requested(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether the environment asks for traces."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporter = environ.get("OTEL_TRACES_EXPORTER", "").strip()
    return exporter == "otlp" or (not exporter and any(map(environ.get, _ENDPOINTS)))


def start(service: str) -> None:
    """Begin to trace in this process, if the environment asks for it.

    Call it after a fork: the exporter has a thread.
    """
    global _provider, _tracer
    if not is_requested():
        return
    protocol = next((os.environ[name] for name in _PROTOCOLS if os.environ.get(name)), _PROTOCOL)
    if protocol != _PROTOCOL:
        _log.warning("no traces: the protocol %r is not supported; set %s", protocol, _PROTOCOL)
        return
    if any(find_spec(name) is None for name in ("opentelemetry", "google.protobuf")):
        _log.warning("no traces: OpenTelemetry is not installed; %s", install_hint("otel"))
        return
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    from compatgate import version

    named = {} if os.environ.get("OTEL_SERVICE_NAME") else {SERVICE_NAME: service}
    _provider = TracerProvider(resource=Resource.create({SERVICE_VERSION: version(), **named}))
    _provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    _tracer = _provider.get_tracer("compatgate", version())


def stop() -> None:
    """Send the remaining spans, within `_STOP_SECONDS`, and trace no more."""
    global _provider, _tracer
    provider, _provider, _tracer = _provider, None, None
    if provider is not None:
        thread = threading.Thread(target=provider.shutdown, name="traces", daemon=True)
        thread.start()
        thread.join(_STOP_SECONDS)


def is_on() -> bool:
    """Return whether this process traces."""
    return _tracer is not None


def span(
    name: str, attributes: Mapping[str, Any] | None = None, *, kind: SpanKind = "internal"
) -> AbstractContextManager[object]:
    """Return a context that is a span; without tracing it does nothing."""
    return _NOTHING if _tracer is None else _span(_tracer, name, attributes, kind, None)


@contextmanager
def _span(
    tracer: Tracer, name: str, attributes: Mapping[str, Any] | None, kind: SpanKind, context: Any
) -> Iterator[Span]:
    from opentelemetry.trace import SpanKind as Kind
    from opentelemetry.trace import Status, StatusCode

    with tracer.start_as_current_span(
        name,
        context=context,
        kind=Kind[kind.upper()],
        attributes=dict(attributes or {}),
        record_exception=False,
        set_status_on_exception=False,
    ) as started:
        try:
            yield started
        except Exception as error:
            started.set_attribute("error.type", type(error).__qualname__)
            started.set_status(Status(StatusCode.ERROR))
            raise


@contextmanager
def request(headers: Iterable[tuple[bytes, bytes]], note: RequestNote) -> Iterator[None]:
    """Trace a request as a part of its caller's trace (``traceparent``)."""
    if _tracer is None:
        yield
        return
    from opentelemetry.propagate import extract
    from opentelemetry.trace import Status, StatusCode

    carrier = {
        name.decode("latin-1"): value.decode("latin-1")
        for name, value in headers
        if name in (b"traceparent", b"tracestate", b"baggage")
    }
    with _span(_tracer, note.method, None, "server", extract(carrier)) as started:
        try:
            yield
        finally:
            started.update_name(f"{note.method} {note.route}")
            started.set_attributes(_describe(note))
            if note.status >= _SERVER_ERROR:
                started.set_status(Status(StatusCode.ERROR))


def _describe(note: RequestNote) -> dict[str, Any]:
    verdict = note.deciding_verdict
    attributes = {
        "http.request.method": note.method,
        "http.response.status_code": note.status,
        "client.address": note.peer,
        "error.type": note.error and note.error.slug,
        "compatgate.route": note.route,
        "compatgate.request_id": note.number,
        "compatgate.decisions": len(note.verdicts),
        "compatgate.identity": note.identity or None,
        "compatgate.verdict": verdict and verdict.verdict,
        "compatgate.allowed": verdict and verdict.allowed,
        "compatgate.target": verdict and (verdict.target or ""),
    }
    return {name: value for name, value in attributes.items() if value is not None}


def carry(function: Callable[..., T]) -> Callable[..., T]:
    """Return a function whose spans belong to the current one, whichever thread calls it."""
    return function if _tracer is None else partial(contextvars.copy_context().run, function)


class RequestNote(Struct):
    """Notes about a request that began at a moment of `time.perf_counter`.

    ``route`` is the name of the route, never the path, which may hold anything. ``status``: 0 until
    there is an answer.
    """

    method: str
    kind: RequestKind
    peer: str
    began: float
    number: str = "-"
    route: str = "none"
    status: int = 0
    identity: str | None = None
    error: CompatgateError | None = None
    verdicts: tuple[Verdict, ...] = ()

    @property
    def deciding_verdict(self) -> Verdict | None:
        """Return the first decision that was denied, else the first."""
        first = next(iter(self.verdicts), None)
        return next((one for one in self.verdicts if not one.allowed), first)


def note_of(environ: Mapping[str, Any]) -> RequestNote | None:
    """Return the note of a request; None: no server made one."""
    return environ.get(NOTE)
