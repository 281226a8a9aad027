"""Pages: an address of each, what a browser reads of it, and its forms sent as it would."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from typing import Any, Literal
from urllib.parse import urlsplit

from flask.testing import FlaskClient
from werkzeug.routing import Map, Rule

from compatgate.kit.ui.assets import STYLES, inline_style
from compatgate.web.page import Page
from compatgate.web.routes import PAGES

_PLACES = ("href", "src", "action", "formaction", "hx-get", "hx-post", "data-follow", "data-copy")
_ACTIVE = ("style", "srcdoc", "hx-vals", "hx-headers", "ping", "background")
_TAGS = """
    html head meta title link script body a header svg path form label input kbd div button span
    nav details summary section h1 h2 h3 h4 ul ol li main p footer strong small time table thead
    tbody tr th td dl dt dd pre code em i article select option optgroup datalist textarea
    figure figcaption del ins progress fieldset legend br hr blockquote rect noscript
    g line text defs pattern circle wbr style
"""
_KNOWN = frozenset(_TAGS.split())


class Marks(HTMLParser):
    """The elements of a page.

    Attributes:
        elements: each with its attributes.
        text: all that is read, in one string.
        odd: declarations, comments and styles that no template writes.
    """

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.odd: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if not self.elements or self.elements[-1][0] != "style":
            self.text += data
        elif data not in map(inline_style, STYLES) and data.strip():
            self.odd.append(f"style {data!r}")

    def handle_comment(self, data: str) -> None:
        self.odd.append(f"comment {data!r}")

    def unknown_decl(self, data: str) -> None:
        self.odd.append(f"declaration {data!r}")

    def all(self, name: str) -> list[str]:
        """Values of an attribute, on whichever elements have it."""
        return [value or "" for _, attributes in self.elements for key, value in attributes.items()
                if key == name]  # fmt: skip

    def active(self) -> Iterator[str]:
        """What may run, or look, or lead otherwise than a template of ours has it; nothing."""
        yield from self.odd
        for tag, attributes in self.elements:
            if tag not in _KNOWN:
                yield f"<{tag}>"
            for name, value in attributes.items():
                if name.startswith(("on", "hx-on")) or name in _ACTIVE or not _is_plain(name):
                    yield f"<{tag} {name}={value!r}>"
                if name in _PLACES and not _leads_well(tag, name, value or ""):
                    yield f"<{tag} {name}={value!r}>"


def _is_plain(name: str) -> bool:
    return name.replace("-", "").isalnum() and "hostile" not in name


def _leads_well(tag: str, name: str, place: str) -> bool:
    """Our own addresses anywhere; elsewhere only by a link, over HTTP."""
    place = place.partition("#")[0]
    if place.startswith("//") or not place.isprintable():
        return False
    scheme = urlsplit(place).scheme
    return name == "data-copy" or scheme == "" or (tag == "a" and scheme in ("http", "https"))


def form_token(client: FlaskClient) -> str:
    """What forms of this browser carry."""
    text = client.get("/ui/keys").text
    return text.partition('name="form_token" value="')[2].partition('"')[0]


def post(client: FlaskClient, path: str, **fields: Any):
    """Send a form as its page would."""
    fields = {"form_token": form_token(client), **fields}
    return client.post(f"/ui/{path}", data=fields)


Names = Mapping[str, str]
"""What stands for ``<name>`` below each room: ``{"targets": "prod-a100"}``."""


def pages(method: Literal["GET", "POST"]) -> list[Page]:
    """The pages of a method, whatever is added to the table."""
    return [page for page in PAGES if page.method == method]


def place(page: Page, names: Names) -> str:
    """An address of a page; path values are those of its room.

    Args:
        page: of the table.
        names: by room, and ``room/argument`` for the second one.

    Raises:
        LookupError: the page is new, and nothing is known to show there.
    """
    room = page.path.split("/")[1]
    rule = Rule(f"/ui{page.path}", endpoint="page", methods=[page.method])
    adapter = Map([rule]).bind("localhost")
    values = {}
    for argument in rule.arguments:
        key = f"{room}/{argument}"
        if key not in names:
            raise LookupError(f"say in the test what stands for {key} on the page {page.path}")
        values[argument] = names[key]
    return adapter.build("page", values, method=page.method)
