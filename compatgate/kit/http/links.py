"""Build addresses of pages and of the API; names in addresses are always quoted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import quote, quote_plus, urlsplit

from flask import current_app, request

API_PREFIX = "/api/v1"
HOOKS_PREFIX = "/hooks"

UI_PREFIX = "/ui"

_CURRENT = "compatgate.current_page"
"""The place of a request's page address and query parameters."""
_DEPTH = 2
"""Slashes of ``/ui/targets``: nothing is above it but home."""
_quote = lru_cache(maxsize=8192)(quote_plus)


def link(*parts: Any, **query: Any) -> str:
    """Return the address of a page: ``link("targets", name, sort="gpu")``; omit what is empty."""
    path = "/".join(quote(str(part), safe="") for part in parts)
    return f"{request.script_root}{UI_PREFIX}/{path}{encode_query(query)}"


def current_page_link(**changes: Any) -> str:
    """Return the current page with changed query parameters; None removes one."""
    known = request.environ.get(_CURRENT)
    if known is None:  # a page has as many of these links as it has cells
        known = request.environ[_CURRENT] = (page_without_query(), request.args.to_dict())
    path, query = known
    return f"{path}{encode_query({**query, **changes})}"


def other_parameters(fields: Iterable[Sequence[Any]]) -> list[tuple[str, str]]:
    """Return the page's query parameters that its filter form has no field for.

    A change of the filters begins at the table's first page; the table says how it is sorted.
    """
    told = {str(field[0]) for field in fields} | {"sort", "cursor", "format"}
    return [(key, value) for key, value in request.args.items() if value and key not in told]


def page_without_query() -> str:
    """Return the current page without query parameters; for a form's answer, the form's page."""
    path = request.path
    if request.method == "POST":
        adapter = current_app.create_url_adapter(request)
        while adapter and path.count("/") > _DEPTH:
            endpoint, values = adapter.match(path, method="GET")
            if "rest" not in values and endpoint.startswith("ui."):
                break
            path = path.rpartition("/")[0]
    return f"{request.script_root}{quote(path)}"


def api_link(*parts: Any, **query: Any) -> str:
    """Return the API address of an object: ``api("runs", id)``."""
    path = "/".join(quote(str(part), safe="") for part in parts)
    return f"{request.script_root}{API_PREFIX}/{path}{encode_query(query)}"


def encode_query(query: dict[str, Any]) -> str:
    """Return ``?a=b``, or empty text without parameters."""
    given = [
        f"{_quote(key)}={_quote(str(value))}"
        for key, value in query.items()
        if value is not None and value != ""
    ]
    return f"?{'&'.join(given)}" if given else ""


def local_path(place: str | None) -> str | None:
    """Return the page to go to next, if it belongs to this service."""
    if not place or "\\" in place or not place.isprintable():
        return None
    parts = urlsplit(place)
    own = f"{request.script_root}{UI_PREFIX}/"
    return place if not parts.scheme and not parts.netloc and place.startswith(own) else None
