"""The whole description."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from compatgate import __version__
from compatgate.gate.hooks.signatures import HEADER
from compatgate.web.openapi import operations
from compatgate.web.openapi.schemas import Schemas
from compatgate.web.route import Route

_ABOUT = """\
Decides whether a GPU stack (driver, CUDA, cuDNN, NCCL, framework, GPU code) may run on a target.

Errors are problem details (RFC 9457): `field` names the part of the request, `hint` what would be
right. Lists come in pages: `next`, and a `Link` header, lead on. A read carries an `ETag`; send it
as `If-None-Match` to be answered 304, or with a change as `If-Match`. Every change needs a reason.
"""


def describe(routes: Sequence[Route], tags: Mapping[str, str]) -> dict[str, Any]:
    """The OpenAPI document of routes.

    Args:
        routes: every route of the API.
        tags: what each tag is about.
    """
    schemas = Schemas(routes)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        path = paths.setdefault(route.prefix + route.template, {})
        path[route.method.lower()] = operations.describe(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "compatgate",
            "version": __version__,
            "summary": "May this GPU stack run there?",
            "description": _ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": text} for name, text in tags.items()],
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "securitySchemes": {
                operations.TOKEN: {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "made by `compatgate token create`; holds scopes",
                },
                operations.SIGNATURE: {
                    "type": "apiKey",
                    "in": "header",
                    "name": HEADER,
                    "description": "`t=SECONDS,v1=HEX`: HMAC-SHA256 with a key of"
                    " `serve --hook-secret` over `v1:SECONDS:METHOD PATH`, a newline and the body",
                },
                operations.PASSWORD: {
                    "type": "http",
                    "scheme": "basic",
                    "description": "a token as the password, any user name: for tools that can"
                    " state a URL and no header",
                },
            },
        },
    }
