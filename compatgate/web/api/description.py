"""The description of the API itself."""

from __future__ import annotations

from typing import Any

from compatgate.web.call import Call, Reply
from compatgate.web.route import NoQuery, Returns, route


@route(
    "GET",
    "/openapi.json",
    scope=None,
    tag="gate",
    returns=Returns(dict[str, Any], "This description", etag=True),
)
def openapi(call: Call[NoQuery]) -> Reply:
    """Describe this API (OpenAPI 3.1)."""
    return Reply(call.service.description)
