"""Addresses that stay: short links to verdicts, and the public keys."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from flask import Flask, Response
from werkzeug.exceptions import NotFound

from compatgate.web.call import Reply
from compatgate.web.route import PREFIX as API
from compatgate.web.ui.install import wants_page
from compatgate.web.ui.page import PREFIX as PAGES
from compatgate.web.view import to_response

if TYPE_CHECKING:
    from compatgate.web.call import Service

JWKS = "/.well-known/jwks.json"
_ID = re.compile(r"vd_[0-9a-f]{32}")


def install(app: Flask, service: Service) -> None:
    """Add ``/v/{id}`` and ``/.well-known/jwks.json``."""

    def verdict(id: str) -> Response:  # noqa: A002 - the name in the path
        """Lead on to what shows the verdict now; whether it may be read is asked there."""
        if not _ID.fullmatch(id):
            raise NotFound
        below = urlsplit(service.settings.public_url).path.rstrip("/")  # a proxy's prefix
        place = f"{below}{PAGES if wants_page() else API}/verdicts/{id}"
        return Response(status=302, headers={"Location": place, "Vary": "Accept"})

    def jwks() -> Response:
        """The public keys, where clients look for them."""
        from compatgate.gate.attest.public import MEDIA

        return to_response(Reply(service.attestations.key_set(), media=MEDIA))

    for path, name, view in (("/v/<id>", "verdict_link", verdict), (JWKS, "jwks", jwks)):
        app.add_url_rule(path, name, view, methods=["GET"], provide_automatic_options=False)
