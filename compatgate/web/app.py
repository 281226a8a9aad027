"""The Flask application: routes from one table, errors as problems, health at the root."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import msgspec
from flask import Flask, Response, request

from compatgate import __version__
from compatgate.catalog import open_library
from compatgate.gate.attest.service import Attestations
from compatgate.gate.auth import anonymous
from compatgate.web import health, lasting, problems, streams
from compatgate.web.api import ROUTES, TAGS
from compatgate.web.asgi import Front
from compatgate.web.call import Reply, Service
from compatgate.web.headers import Envelope
from compatgate.web.hooks import HOOKS, views
from compatgate.web.metrics import Metrics
from compatgate.web.openapi.document import describe
from compatgate.web.route import PREFIX
from compatgate.web.ui import install as pages
from compatgate.web.view import make_view, to_response

if TYPE_CHECKING:
    from werkzeug.wrappers import Response as AnyResponse

    from compatgate.gate.service import Gate
    from compatgate.web.settings import Settings

_INDEX = {
    "name": "compatgate",
    "version": __version__,
    "api": PREFIX,
    "ui": "/ui/",
    "openapi": f"{PREFIX}/openapi.json",
    "health": ["/healthz", "/readyz", "/metrics"],
    "keys": lasting.JWKS,
}


EXTENSION = "compatgate"
"""Under which a Flask application carries its `Service`."""


def create_app(gate: Gate, settings: Settings) -> Flask:
    """The application of one gate.

    Args:
        gate: answers; safe to share between threads.
        settings: what the operator chose.
    """
    app = Flask("compatgate", static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = settings.max_request_size + 1
    app.url_map.merge_slashes = False
    service = Service(
        gate,
        settings,
        Metrics(),
        anonymous(settings.anonymous),
        open_library(settings.overlays),
        _description(),
        streams.Listeners(settings.max_listeners),
        Attestations(gate.database, settings.signing),
    )
    problems.install(app)
    health.install(app, service)
    lasting.install(app, service)
    for route in ROUTES:
        _add(app, route.method, PREFIX + route.flask_rule, route.name, make_view(route, service))
    for hook, view in views(service):
        _add(app, hook.method, hook.prefix + hook.flask_rule, hook.name, view)
    _add(app, "GET", "/", "index", _index)
    pages.install(app, service)
    app.after_request(_counting(service.metrics))
    app.extensions[EXTENSION] = service
    app.wsgi_app = Envelope(app.wsgi_app)  # type: ignore[method-assign]
    return app


def create_front(
    gate: Gate, settings: Settings, threads: int, *, parent: int | None = None
) -> Front:
    """The application of one gate for a server of ASGI; it closes the gate in the end.

    Args:
        gate: as of `create_app`.
        settings: likewise.
        threads: for each kind of requests.
        parent: as of `Front`.
    """
    app = create_app(gate, settings)
    return Front(app, app.extensions[EXTENSION], threads, parent)


@cache
def _description() -> bytes:
    """Return the OpenAPI document: it is the same for every application of a process."""
    return msgspec.json.encode(describe((*ROUTES, *HOOKS), TAGS))


def _add(app: Flask, method: str, path: str, name: str, view: Callable[..., AnyResponse]) -> None:
    app.add_url_rule(path, name, view, methods=[method], provide_automatic_options=False)


def _index() -> AnyResponse:
    """Where to go from here: programs are told, browsers are led to the pages."""
    return pages.to_home() if pages.wants_page() else to_response(Reply(_INDEX))


def _counting(metrics: Metrics) -> Callable[[Response], Response]:
    def count(response: Response) -> Response:
        metrics.requested(request.method, request.endpoint or "none", response.status_code)
        return response

    return count
