"""Serve styles, scripts and icons; draw badges, and the last values of a metric as a line.

Files are read once, named by their content, and cached by browsers forever. Styles stand in the
page, which is seen without a second request. A badge is two words in a picture that eyes and
screen readers can read. A shape goes with every colour, so a chart can be read without telling
colours apart.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from base64 import b64encode
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import PurePosixPath
from typing import Literal
from xml.sax.saxutils import escape

from flask import Response, request
from markupsafe import Markup
from msgspec import Struct

from compatgate.errors import NotFound
from compatgate.resources import package_dir

_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_SCRIPT, _PARTS = "pages.js", ("answers.js", "app.js", "forms.js", "vendor/htmx.min.js")
"""The script of every page, and what it is joined of: one request; the first says *use strict*."""
STYLES = ("app.css", "vendor/uplot.min.css")
_COMMENT_OR_INDENT = re.compile(r"/\*.*?\*/|^\s+", re.DOTALL | re.MULTILINE)
_CACHE_FOREVER = "public, max-age=31536000, immutable"
Tone = Literal["pass", "warn", "fail", "muted", "plain"]
SPARK_WIDTH, SPARK_HEIGHT = 96, 22
_SPARK_MARGIN = 5
_LOOKS: dict[str, tuple[str, Tone]] = {
    **dict.fromkeys(("regression", "failed", "error", "timeout"), ("▲", "fail")),
    "inconclusive": ("◆", "warn"),
    "improvement": ("■", "pass"),
    **dict.fromkeys(("ok", "passed"), ("●", "plain")),
}
BADGE_MEDIA = "image/svg+xml"
Look = Literal["good", "doubtful", "bad", "neutral"]
_COLOURS: dict[Look, str] = {
    "good": "#2a6e2f",
    "doubtful": "#85580a",
    "bad": "#b3261e",
    "neutral": "#555555",
}
"""Colours with enough contrast for white text (WCAG AA); the text repeats the meaning."""
_LABEL = "#3d4450"
_MAX_LENGTH = 64
_NARROW, _WIDE, _MARGIN = 6.6, 11.0, 10
"""Widths of a character and of what surrounds it; ``textLength`` fits the text to them."""


class Asset(Struct, frozen=True):
    """A static file with its headers."""

    media: str
    plain: bytes
    packed: bytes


@cache
def load_assets() -> tuple[str, dict[str, Asset]]:
    """Return a digest of all files, and each by its path."""
    folder, digest = package_dir() / "kit/ui/static", hashlib.sha256()
    plain = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.suffix in _TYPES
    }
    plain[_SCRIPT] = b"\n".join(plain.pop(name) for name in _PARTS)
    found = {}
    for name, data in plain.items():
        media = _TYPES[PurePosixPath(name).suffix]
        found[name] = Asset(media, data, gzip.compress(data, mtime=0))
        digest.update(name.encode() + data)
    return digest.hexdigest()[:12], found


def asset_path(name: str) -> str:
    """Return the address of a file below the pages' prefix."""
    digest, found = load_assets()
    if name not in found:
        raise LookupError(f"static file {name} does not exist")
    return f"/static/{digest}/{name}"


@cache
def inline_style(name: str) -> Markup:
    """Return a style sheet as it stands in pages, without comments."""
    text = load_assets()[1][name].plain.decode()
    return Markup(_COMMENT_OR_INDENT.sub("", text).strip())  # noqa: S704 - a file of this package


@cache
def style_sources() -> str:
    """Return the styles that pages may have, as a content security policy names them."""
    digests = (hashlib.sha256(inline_style(name).encode()).digest() for name in STYLES)
    return " ".join(f"'sha256-{b64encode(digest).decode()}'" for digest in digests)


def send_asset(name: str) -> Response:
    """Return a file, compressed if the browser accepts that."""
    found = load_assets()[1].get(name)
    if found is None:
        raise NotFound(f"file {name!r} does not exist")
    packs = request.accept_encodings["gzip"] > 0
    response = Response(found.packed if packs else found.plain, content_type=found.media)
    if packs:
        response.headers["Content-Encoding"] = "gzip"
    response.headers["Vary"] = "Accept-Encoding"
    response.headers["Cache-Control"] = _CACHE_FOREVER
    return response


class Badge(Struct, frozen=True):
    """A badge: a label, and a word that says all that the colour does.

    ``title``: a sentence, for screen readers and tool tips.
    """

    label: str
    word: str
    look: Look
    title: str


def draw_badge(badge: Badge) -> bytes:
    """Return the badge as SVG, without active content."""
    label, word = _shorten(badge.label), _shorten(badge.word)
    label_width, word_width = _width(label), _width(word)
    left, right = label_width + _MARGIN, word_width + _MARGIN
    title = _escape_text(badge.title)
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" \
aria-label="{title}">
<title>{title}</title>
<rect width="{left}" height="20" fill="{_LABEL}"/>
<rect x="{left}" width="{right}" height="20" fill="{_COLOURS[badge.look]}"/>
<g fill="#ffffff" font-family="Verdana,DejaVu Sans,Geneva,sans-serif" font-size="11" \
text-anchor="middle">
<text x="{left / 2}" y="14" textLength="{label_width}">{_escape_text(label)}</text>
<text x="{left + right / 2}" y="14" textLength="{word_width}">{_escape_text(word)}</text>
</g>
</svg>
""".encode()


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_LENGTH else f"{text[: _MAX_LENGTH - 1]}…"


def _width(text: str) -> int:
    return round(sum(_NARROW if ord(character) < 0x2000 else _WIDE for character in text))


def _escape_text(text: str) -> str:
    """Escape text for an SVG element or attribute; XML allows no control characters."""
    clean = "".join(c if c.isprintable() else "�" for c in text)
    return escape(clean, {'"': "&quot;", "'": "&#39;"})


def find_shape(outcome: str) -> tuple[str, Tone]:
    """Return the shape of an outcome as a character, and its tone; a ring: it judges nothing."""
    return _LOOKS.get(outcome, ("○", "muted"))


class Marker(Struct, frozen=True):
    """A point of a line, with the shape and tone of its outcome."""

    x: float
    y: float
    shape: str
    tone: Tone


class Sparkline(Struct, frozen=True):
    """The last values of a metric as a line of points, and as words, for a row of a list.

    ``markers``: of values that were judged as worse or unclear, and of the last value.
    """

    line: str
    markers: tuple[Marker, ...]
    label: str


def draw_sparkline(values: Sequence[tuple[float, str]], what: str, unit: str = "") -> Sparkline:
    """Return the line of some values.

    ``values`` come with the judge's outcomes, oldest first; at least one.
    """
    numbers = [value for value, _ in values]
    low, span = min(numbers), max(numbers) - min(numbers)
    step = (SPARK_WIDTH - 2 * _SPARK_MARGIN) / max(1, len(values) - 1)
    markers = []
    for place, (value, outcome) in enumerate(values):
        share = (value - low) / span if span else 0.5  # equal values are a line in the middle
        y = SPARK_HEIGHT - _SPARK_MARGIN - share * (SPARK_HEIGHT - 2 * _SPARK_MARGIN)
        x = _SPARK_MARGIN + step * place
        markers.append(Marker(round(x, 1), round(y, 1), *find_shape(outcome)))
    doubtful = [one for one in markers[:-1] if one.tone in ("fail", "warn")]
    line = " ".join(f"{one.x},{one.y}" for one in markers)
    runs = "1 run" if len(values) == 1 else f"{len(values)} runs"
    reach = f"from {low:.4g} to {max(numbers):.4g}, last {numbers[-1]:.4g}"
    outcomes = Counter(outcome for _, outcome in values if outcome not in ("", "ok", "no-baseline"))
    judged = "".join(f", {count} {outcome}" for outcome, count in sorted(outcomes.items()))
    label = f"{what}, {runs}: {reach}{f' {unit}' if unit not in ('', '1') else ''}{judged}"
    return Sparkline(line, (*doubtful, markers[-1]), label)
