"""Render pages: the navigation with its keys, and templates as HTML.

Every value is escaped unless a filter made it.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

from flask import request
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from msgspec import Struct

from compatgate import __version__
from compatgate.kit.http.links import UI_PREFIX, asked_besides, bare, here, link
from compatgate.kit.ui.assets import asset_path
from compatgate.kit.ui.filters import FILTERS
from compatgate.resources import package_dir
from compatgate.service.web import auth

if TYPE_CHECKING:
    from pathlib import Path

    from compatgate.service.tokens.service import Principal
    from compatgate.service.web.call import Service
    from compatgate.service.web.page import HtmlPage, Page


class Item(Struct, frozen=True):
    """An item of the navigation.

    Attributes:
        name: its path below ``/ui``, but for home.
        key: key to press after ``g``.
        scope: scope that the item needs.
    """

    name: str
    label: str
    key: str
    scope: str = "read"

    @property
    def path(self) -> str:
        """Return the path below ``/ui``; empty: home."""
        return "" if self.name == "home" else self.name


class Group(Struct, frozen=True):
    """A group of items."""

    label: str
    items: tuple[Item, ...]


NAVIGATION: tuple[Group, ...] = (
    Group(
        "Gate",
        (
            Item("home", "Home", "h"),
            Item("matrix", "Matrix", "m"),
            Item("ask", "Ask", "a", "gate"),
            Item("what-if", "What if", "w", "gate"),
        ),
    ),
    Group(
        "Blessed",
        (
            Item("targets", "Targets", "t"),
            Item("entries", "Entries", "e"),
            Item("waivers", "Waivers", "x"),
            Item("revisions", "Revisions", "v"),
        ),
    ),
    Group(
        "Fleet",
        (
            Item("nodes", "Nodes", "n"),
            Item("drift", "Drift", "y"),
        ),
    ),
    Group(
        "Canaries",
        (
            Item("runs", "Runs", "r"),
            Item("baselines", "Baselines", "b"),
            Item("hosts", "Staging hosts", "s"),
            Item("suites", "Suites", "i"),
            Item("workloads", "Workloads", "o"),
        ),
    ),
    Group(
        "Records",
        (
            Item("decisions", "Decisions", "d"),
            Item("audit", "Audit", "l"),
        ),
    ),
    Group(
        "Reference",
        (
            Item("facts", "Facts", "f"),
            Item("rules", "Rules", "u"),
        ),
    ),
    Group("Administration", (Item("tokens", "Tokens", "k", "admin"),)),
)


def keys() -> dict[str, str]:
    """Return the path of each key after ``g``."""
    return {item.key: item.path for group in NAVIGATION for item in group.items}


THEME = "compatgate_theme"
THEMES = ("auto", "light", "dark")
_UNSEEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]"
)


def render(shown: HtmlPage, page: Page, principal: Principal, service: Service, done: str) -> str:
    """Return a page as HTML.

    Args:
        shown: the handler's answer.
        page: the requested page.
        principal: the caller.
        service: knows the revision.
        done: what the form before did, if it did something.
    """
    context: dict[str, Any] = {
        "title": shown.title,
        "table": shown.table,
        "page": page,
        "principal": principal,
        "signed_in": principal.token_id is not None,
        "done": done,
        "theme": theme(),
        "navigation": NAVIGATION,
        "revision": service.gate.snapshots.known_revision(),
        "form_token": auth.form_field,
        **shown.context,
    }
    return environment().get_template(shown.template).render(context)


def theme() -> str:
    """Return the chosen theme: light, dark, or auto."""
    chosen = request.cookies.get(THEME, "")
    return chosen if chosen in THEMES else "auto"


def visible(value: Any) -> Any:
    """Replace invisible characters by visible ones: control characters, and marks of direction.

    A foreign name must not reverse the text next to it.
    """
    return _UNSEEN.sub("\ufffd", value) if type(value) is str else value


def _template_folders() -> list[Path]:
    """Return the folders of templates: the kit's, and one of each capability."""
    package = package_dir()
    return [package / "kit/ui/templates", *sorted(package.glob("service/*/templates"))]


@cache
def environment() -> Environment:
    """Return the template environment."""
    made = Environment(
        loader=FileSystemLoader(_template_folders()),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(FILTERS)
    made.globals.update(
        link=link,
        here=here,
        bare=bare,
        asked_besides=asked_besides,
        asset=_asset,
        version=__version__,
    )
    return made


def _asset(name: str) -> str:
    return f"{request.script_root}{UI_PREFIX}{asset_path(name)}"
