"""Build the Flask application: routes, hooks, pages, short links; errors as problems."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from flask import Flask, Response, redirect, request
from werkzeug.exceptions import NotFound

from compatgate import version
from compatgate.catalog import open_library
from compatgate.kit.http import replies
from compatgate.kit.http.limits import RequestLimits
from compatgate.kit.http.links import API_PREFIX as API
from compatgate.kit.http.links import UI_PREFIX
from compatgate.kit.http.replies import Envelope, Reply
from compatgate.kit.tracing import note_of
from compatgate.kit.ui import assets
from compatgate.service.access.identity import Identity
from compatgate.service.audit.attestations import Attestations
from compatgate.service.cluster.manifest_checks import ManifestChecks
from compatgate.service.runs.queue import logs
from compatgate.web import metrics
from compatgate.web.admission_hook import DESK, AdmissionDesk
from compatgate.web.asgi import Front
from compatgate.web.metrics import Metrics, TargetNames
from compatgate.web.page_views import add_route, make_page_view, make_route_view, to_response
from compatgate.web.routes import PAGES, ROUTES, views
from compatgate.web.service import Service

if TYPE_CHECKING:
    from werkzeug.wrappers import Response as AnyResponse

    from compatgate.service.app import Rooms
    from compatgate.web.service import Settings

JWKS = "/.well-known/jwks.json"
PEM = "/.well-known/signing-keys.pem"
_VERDICT_ID = re.compile(r"vd_[0-9a-f]{32}")
_INDEX = {
    "name": "compatgate",
    "version": version(),
    "api": API,
    "ui": "/ui/",
    "openapi": f"{API}/openapi.json",
    "health": ["/healthz", "/readyz", "/metrics"],
    "keys": JWKS,
}
EXTENSION = "compatgate"
"""Key of the `Service` in a Flask application's extensions."""


def install_pages(app: Flask, service: Service) -> None:
    """Add every page below ``/ui``, with templates and static files."""
    for page in PAGES:
        view = make_page_view(page, service)
        add_route(app, UI_PREFIX + page.path, f"ui.{page.endpoint}", view, page.method)

    def static(digest: str, name: str) -> Response:
        """Return a static file; an address with an old digest gets the current file."""
        return assets.send_asset(name)

    app.add_url_rule(f"{UI_PREFIX}/static/<digest>/<path:name>", "ui.static", static)
    app.add_url_rule(UI_PREFIX, "ui.begin", redirect_home)


def wants_page() -> bool:
    """Return whether a browser makes the request, which needs a page as answer."""
    best = request.accept_mimetypes.best_match(["application/json", "text/html"])
    return best == "text/html" and "text/html" in request.accept_mimetypes.values()


def redirect_home() -> AnyResponse:
    """Redirect from the root to the first page."""
    return redirect(f"{request.script_root}{UI_PREFIX}/", 302)


def install_short_links(app: Flask, service: Service) -> None:
    """Add ``/v/{id}``, and the public keys below ``/.well-known``."""

    def verdict(id: str) -> Response:  # noqa: A002 - the name in the path
        """Redirect to the page or route of a verdict, which checks access.

        The page finds short ids, and suggests others for a mistyped one.
        """
        if not _VERDICT_ID.fullmatch(id) and not wants_page():
            raise NotFound
        below = urlsplit(service.settings.public_url).path.rstrip("/")  # a proxy's prefix
        place = f"{below}{UI_PREFIX if wants_page() else API}/verdicts/{quote(id, safe='')}"
        return Response(status=302, headers={"Location": place, "Vary": "Accept"})

    def jwks() -> Response:
        from compatgate.service.audit.keys import MEDIA

        return to_response(Reply(service.attestations.key_set(), media=MEDIA))

    def pem() -> Response:
        """Return the public keys in PEM, as openssl and cosign read them."""
        from compatgate.service.audit.keys import PEM_MEDIA

        if not (keys := service.attestations.key_pem()):
            raise NotFound
        return to_response(Reply(keys, media=PEM_MEDIA))

    add_route(app, "/v/<id>", "verdict_link", verdict)
    add_route(app, JWKS, "jwks", jwks)
    add_route(app, PEM, "pem", pem)


def create_app(rooms: Rooms, settings: Settings) -> Flask:
    """Return the application of one gate."""
    app = Flask("compatgate", static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = settings.max_request_size + 1
    app.config["MAX_FORM_MEMORY_SIZE"] = settings.max_request_size + 1  # of forms with files, too
    app.url_map.merge_slashes = False
    gate = rooms.gate
    service = Service(
        rooms,
        settings,
        Metrics(TargetNames(gate.snapshots.known, settings.metric_targets)),
        RequestLimits(settings.failed, settings.rate, settings.anonymous_rate),
        Attestations(settings.signing, rooms.decisions.read_own, gate.still_holds),
        Identity(gate.database, settings.identity),
        (
            open_library(settings.overlays),
            logs.LogListeners(settings.max_listeners),
            ManifestChecks(gate, settings.admission),
        ),
    )
    gate.database.on_error = service.metrics.database_failed
    rooms.sessions.limits = settings.sessions
    replies.install_problems(app, service.explain)
    metrics.install_health(app, service)
    install_short_links(app, service)
    for route in ROUTES:
        view = make_route_view(route, service)
        add_route(app, API + route.flask_rule, route.name, view, route.method)
    desk = AdmissionDesk(service)
    for hook, view in views(service, desk):
        add_route(app, hook.prefix + hook.flask_rule, hook.name, view, hook.method)
    add_route(app, "/", "index", _index)
    install_pages(app, service)

    def count(response: Response) -> Response:
        route = request.endpoint or "none"
        service.metrics.requested(request.method, route, response.status_code)
        if (note := note_of(request.environ)) is not None:
            note.route, note.status = route, response.status_code
        return response

    app.after_request(count)
    app.extensions[EXTENSION] = service
    app.extensions[DESK] = desk
    app.wsgi_app = Envelope(app.wsgi_app)  # type: ignore[method-assign]
    return app


def create_front(
    rooms: Rooms, settings: Settings, threads: int, *, parent: int | None = None
) -> Front:
    """Return the ASGI application of one gate; it closes the rooms at the end."""
    app = create_app(rooms, settings)
    rooms.nodes.inventory.prepare()
    rooms.watch_incidents(settings.incident_webhook)
    return Front(app, app.extensions[EXTENSION], threads, parent)


def _index() -> AnyResponse:
    """Answer programs with the main addresses; redirect browsers to the pages."""
    if wants_page():
        return redirect_home()
    return to_response(Reply(_INDEX))
