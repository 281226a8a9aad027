"""Links: short ones that stay, and where they lead now."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from flask import Flask, Response, request
from werkzeug.exceptions import NotFound

from compatgate.web.call import Reply
from compatgate.web.route import PREFIX
from compatgate.web.view import to_response

if TYPE_CHECKING:
    from compatgate.web.call import Service

JWKS = "/.well-known/jwks.json"
_ID = re.compile(r"vd_[0-9a-f]{32}")
_HOST = re.compile(r"[A-Za-z0-9.-]{1,253}(:\d{1,5})?|\[[0-9a-fA-F:.]{2,45}\](:\d{1,5})?")


def base_url(service: Service) -> str:
    """Where people reach this service: as the operator says, else where it was asked."""
    if service.settings.public_url:
        return service.settings.public_url.rstrip("/")
    host = request.environ.get("HTTP_HOST", "")
    return f"{request.scheme}://{host}" if _HOST.fullmatch(host) else ""


def verdict_link(base: str, verdict_id: str) -> str:
    """A link to a verdict that stays, whatever shows verdicts.

    Args:
        base: of `base_url`.
        verdict_id: ``vd_...``.
    """
    return f"{base}/v/{verdict_id}"


def verdict_place(verdict_id: str) -> str:
    """What shows a verdict now, below the service's root: browsers are shown the page."""
    from compatgate.web.ui.install import wants_page
    from compatgate.web.ui.page import PREFIX as PAGES

    return f"{PAGES if wants_page() else PREFIX}/verdicts/{verdict_id}"


def install(app: Flask, service: Service) -> None:
    """Add ``/v/{id}`` and ``/.well-known/jwks.json``."""

    def verdict(id: str) -> Response:  # noqa: A002 - the name in the path
        """Lead on to the verdict; whether it may be read is asked there."""
        if not _ID.fullmatch(id):
            raise NotFound
        below = urlsplit(service.settings.public_url).path.rstrip("/")  # a proxy's prefix
        place = f"{below}{verdict_place(id)}"
        return Response(status=302, headers={"Location": place, "Vary": "Accept"})

    def jwks() -> Response:
        """The public keys, where clients look for them."""
        from compatgate.gate.attest.public import MEDIA

        return to_response(Reply(service.attestations.key_set(), media=MEDIA))

    for path, name, view in (("/v/<id>", "verdict_link", verdict), (JWKS, "jwks", jwks)):
        app.add_url_rule(path, name, view, methods=["GET"], provide_automatic_options=False)
