"""The pages as part of the application."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import Flask, Response, redirect, request
from flask_compress import Compress

from compatgate.errors import CompatgateError
from compatgate.web import problems
from compatgate.web.ui import assets
from compatgate.web.ui.page import PREFIX, Page
from compatgate.web.ui.pages import PAGES
from compatgate.web.ui.view import make_view

if TYPE_CHECKING:
    from werkzeug.wrappers import Response as AnyResponse

    from compatgate.web.call import Service


_COMPRESSION = {
    "COMPRESS_REGISTER": False,  # each page says so by itself
    "COMPRESS_MIMETYPES": ["text/html"],
    "COMPRESS_ALGORITHM": ["zstd", "gzip"],
    "COMPRESS_STREAMS": False,
}
"""Pages are small: what browsers unpack fastest does."""


def install(app: Flask, service: Service) -> None:
    """Add every page below ``/ui``, compressed, and what they are drawn with."""
    app.config |= _COMPRESSION
    compress = Compress(app)
    for page in PAGES:
        _add(app, page, service, compress)
    app.add_url_rule(f"{PREFIX}/static/<digest>/<path:name>", "ui.static", _static)
    app.add_url_rule(PREFIX, "ui.begin", _begin)


def wants_page() -> bool:
    """Whether a browser asks, which shows people pages."""
    best = request.accept_mimetypes.best_match(["application/json", "text/html"])
    return best == "text/html" and "text/html" in request.accept_mimetypes.values()


def to_home() -> AnyResponse:
    """From the root to the first page."""
    return redirect(f"{request.script_root}{PREFIX}/", 302)


def _add(app: Flask, page: Page, service: Service, compress: Compress) -> None:
    app.add_url_rule(
        PREFIX + page.path,
        f"ui.{page.endpoint}",
        compress.compressed()(make_view(page, service)),
        methods=[page.method],
        provide_automatic_options=False,
    )


def _begin() -> AnyResponse:
    return to_home()


def _static(digest: str, name: str) -> Response:
    """A file; an address with an older digest is answered with what there is now."""
    try:
        return assets.send(name)
    except CompatgateError as error:
        found = problems.answer(error, request.environ)
        return Response(found.body, status=found.status, headers=found.headers)
