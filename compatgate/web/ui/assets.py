"""Style, scripts and icons: read once, named by their content, kept by browsers for ever."""

from __future__ import annotations

import gzip
import hashlib
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable

from flask import Response, request
from msgspec import Struct

from compatgate.errors import NotFound

_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_FOR_EVER = "public, max-age=31536000, immutable"


class Asset(Struct, frozen=True):
    """A file as it is sent."""

    media: str
    plain: bytes
    packed: bytes


@cache
def assets() -> tuple[str, dict[str, Asset]]:
    """A digest of all files, and each by its path."""
    found = dict(_read(resources.files("compatgate.web.ui") / "static", ""))
    digest = hashlib.sha256()
    for name, asset in sorted(found.items()):
        digest.update(name.encode())
        digest.update(asset.plain)
    return digest.hexdigest()[:12], found


def _read(folder: Traversable, prefix: str) -> list[tuple[str, Asset]]:
    found: list[tuple[str, Asset]] = []
    for item in folder.iterdir():
        if item.is_dir():
            found += _read(item, f"{prefix}{item.name}/")
        elif media := next((m for end, m in _TYPES.items() if item.name.endswith(end)), None):
            plain = item.read_bytes()
            found.append((prefix + item.name, Asset(media, plain, gzip.compress(plain, mtime=0))))
    return found


def asset_path(name: str) -> str:
    """The address of a file below the pages' prefix."""
    digest, found = assets()
    if name not in found:
        raise LookupError(f"there is no static file {name}")
    return f"/static/{digest}/{name}"


def send(name: str) -> Response:
    """A file, packed where the browser can unpack it.

    Raises:
        NotFound: there is none of that name.
    """
    found = assets()[1].get(name)
    if found is None:
        raise NotFound(f"there is no file {name!r}")
    packs = request.accept_encodings["gzip"] > 0
    response = Response(found.packed if packs else found.plain, content_type=found.media)
    if packs:
        response.headers["Content-Encoding"] = "gzip"
    response.headers["Vary"] = "Accept-Encoding"
    response.headers["Cache-Control"] = _FOR_EVER
    return response
