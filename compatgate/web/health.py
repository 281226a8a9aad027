"""Health at the root: alive, ready, and figures for Prometheus."""

from __future__ import annotations

import msgspec
from flask import Flask, Response, request
from prometheus_client import CONTENT_TYPE_LATEST

from compatgate.web.auth import authenticate, authorize
from compatgate.web.call import Service

ALIVE = msgspec.json.encode({"status": "alive"})


def install(app: Flask, service: Service) -> None:
    """Add ``/healthz``, ``/readyz`` and ``/metrics``."""

    def healthz() -> Response:
        """The process is alive."""
        return _json(ALIVE)

    def readyz() -> Response:
        """Say that the gate can decide and record; whoever may read is told from what."""
        state = service.gate.readiness.state()
        sender = authenticate(request.environ.get("HTTP_AUTHORIZATION"), service)
        told = {"status": "ready", **(state if sender.may("read") else {})}
        return _json(msgspec.json.encode(told))

    def metrics() -> Response:
        """Counters, for whoever may read."""
        authorize(authenticate(request.environ.get("HTTP_AUTHORIZATION"), service), "read")
        return Response(service.metrics.render(service.gate), content_type=CONTENT_TYPE_LATEST)

    for view in (healthz, readyz, metrics):
        app.add_url_rule(
            f"/{view.__name__}",
            view.__name__,
            view,
            methods=["GET"],
            provide_automatic_options=False,
        )


def _json(body: bytes) -> Response:
    response = Response(body, content_type="application/json")
    response.headers["Cache-Control"] = "no-store"
    return response
