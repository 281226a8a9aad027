"""What a page is made of, as a browser reads it: for tests of what must not be there."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from urllib.parse import urlsplit

_PLACES = ("href", "src", "action", "formaction", "hx-get", "hx-post", "data-follow", "data-copy")
_ACTIVE = ("style", "srcdoc", "hx-vals", "hx-headers", "ping", "background")
_TAGS = """
    html head meta title link script body a header svg path form label input kbd div button span
    nav details summary section h1 h2 h3 h4 ul ol li main p footer strong small time table thead
    tbody tr th td dl dt dd pre code em i article select option optgroup datalist textarea
    figure figcaption del ins progress fieldset legend br hr blockquote rect noscript
    g line text defs pattern circle wbr
"""
_KNOWN = frozenset(_TAGS.split())


class Marks(HTMLParser):
    """The elements of a page.

    Attributes:
        elements: each with its attributes.
        text: all that is read, in one string.
        odd: declarations and comments that no template writes.
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
        self.text += data

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
