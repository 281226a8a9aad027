"""Declare pages: who may see each, with which parameters, and where; and render them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import msgspec
from flask import request
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from msgspec import Struct
from msgspec.structs import replace

from compatgate import version
from compatgate.errors import BadInput, CompatgateError
from compatgate.kit.http.links import (
    UI_PREFIX,
    current_page_link,
    link,
    other_parameters,
    page_without_query,
)
from compatgate.kit.http.requests import read_reason
from compatgate.kit.http.route import NoQuery, Scope, declared
from compatgate.kit.principal import Authorship
from compatgate.kit.ui.assets import asset_path, inline_style
from compatgate.kit.ui.filters import BROWSER_ZONE, FILTERS, current_preferences
from compatgate.kit.ui.tables import Listing, Table, choose_columns
from compatgate.resources import package_dir
from compatgate.web import auth

if TYPE_CHECKING:
    from compatgate.kit.principal import Principal
    from compatgate.service.app import Rooms
    from compatgate.service.gate.questions.service import Gate
    from compatgate.web.service import Service

Q = TypeVar("Q", bound=Struct)
MAX_CHOICES = 200
"""Maximum number of choices in a form."""
_INVISIBLE_CHARACTERS = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]"
)


class PageRequest(Struct, Generic[Q], frozen=True):
    """A request for a page."""

    service: Service
    page: Page
    principal: Principal
    args: dict[str, Any]
    query: Q
    form: dict[str, str]

    @property
    def rooms(self) -> Rooms:
        """Return the services of all rooms."""
        return self.service.rooms

    @property
    def gate(self) -> Gate:
        """Return the gate that answers."""
        return self.service.gate

    def by(self) -> Authorship:
        """Return the author of a change, and the form's ``reason`` and ``force``."""
        reason = read_reason(None, self.form.get("reason"))
        return Authorship(self.principal.name, reason, self.principal, "force" in self.form)


class HtmlPage(Struct, frozen=True):
    """A page to render, and its main table, which a CSV export is made of.

    ``error``: why the question or form of the page was refused; it decides the status.
    """

    template: str
    title: str
    context: dict[str, Any] = {}
    table: Table | None = None
    error: CompatgateError | None = None


class Redirect(Struct, frozen=True):
    """A redirection to another page, which shows the result of an action (``done``) once.

    ``cookies`` stay in the browser for a year, by name.
    """

    place: str
    done: str = ""
    cookies: Mapping[str, str] = {}


class PageOf(Struct, Generic[Q], frozen=True):
    """A page, or the action of a form; ``path``: below ``/ui``, in Flask's form.

    ``refused`` shows the form, or the page without an answer, again; the error is added to it.
    None: the error has a page of its own.
    """

    handler: Callable[[PageRequest[Q]], Any]
    path: str
    scope: Scope | None = "read"
    method: Literal["GET", "POST"] = "GET"
    nav: str = ""
    query: type[Q] = NoQuery  # type: ignore[assignment]
    refused: Callable[[PageRequest[Any]], HtmlPage] | None = None

    @property
    def endpoint(self) -> str:
        """Return the name of the endpoint, unique among pages."""
        return self.handler.__name__

    def __call__(self, ask: PageRequest[Any]) -> Any:
        """Answer a request."""
        return self.handler(ask)


Page = PageOf[Any]
page = declared(PageOf)


@cache
def _listings() -> dict[str, Listing]:
    text = (package_dir() / "web/tables.toml").read_bytes()
    found = msgspec.toml.decode(text, type=dict[str, Listing])
    return {key: replace(one, name=one.name or key) for key, one in found.items()}


def listing(key: str) -> Listing:
    """Return the columns and texts of a table, which ``tables.toml`` declares."""
    return _listings()[key]


def expected_revision(form: Mapping[str, str]) -> int:
    """Return the revision of the document that the form shows."""
    text = form.get("revision", "")
    if not (text.isascii() and text.isdecimal()) or len(text) > 9:
        raise BadInput("is not a revision", field="revision", value=text, hint="reload the page")
    return int(text)


def read_action(ask: PageRequest[Any], *allowed: str) -> str:
    """Return what a form with several buttons asks for."""
    what = ask.form.get("what", "")
    if what not in allowed:
        hint = f"one of {', '.join(allowed)}"
        raise BadInput("is not an action", field="what", value=what, hint=hint)
    return what


def choices(values: Iterable[str]) -> list[str] | None:
    """Return the choices of a form; None: too many choices, so the user types."""
    found = sorted(set(values))
    return found if len(found) <= MAX_CHOICES else None


class NavigationItem(Struct, frozen=True):
    """A page that the navigation leads to; ``key``: to press after ``g``."""

    name: str
    label: str
    key: str
    scope: str = "read"

    @property
    def path(self) -> str:
        """Return the path below ``/ui``; empty: home."""
        return "" if self.name == "home" else self.name


class NavigationGroup(Struct, frozen=True):
    """A link of the navigation: to the first of its pages, which the others follow as tabs.

    ``begins``: a line separates it from the links before.
    """

    label: str
    items: tuple[NavigationItem, ...]
    begins: bool = False

    def visible(self, principal: Principal) -> list[NavigationItem]:
        """Return the pages that a principal may see."""
        return [item for item in self.items if principal.may(item.scope)]


def _group(label: str, *items: tuple[str, ...], begins: bool = False) -> NavigationGroup:
    """Return a group; each item has name, label, key and, if it is not ``read``, its scope."""
    return NavigationGroup(label, tuple(NavigationItem(*item) for item in items), begins)


NAVIGATION = (
    _group("What runs where", ("home", "What runs where", "h")),
    _group("Ask", ("ask", "Ask", "a", "gate"), ("triage", "Triage", "c", "gate")),
    _group("Attention", ("attention", "Attention", "j"), ("incidents", "All incidents", "q")),
    _group("Decisions", ("decisions", "Decisions", "d"), ("report", "Postmortem", "g")),
    _group(
        "Matrix",
        ("entries", "Entries", "e"),
        ("waivers", "Waivers", "x"),
        ("proposals", "Proposals", "p"),
        ("revisions", "Revisions", "v"),
        begins=True,
    ),
    _group("Targets", ("targets", "Targets", "t")),
    _group("Nodes", ("nodes", "Nodes", "n"), ("drift", "Drift", "y")),
    _group("Upgrades", ("upgrades", "Upgrades", "z"), ("what-if", "What if", "w", "gate")),
    _group(
        "Canaries",
        ("runs", "Runs", "r"),
        ("baselines", "Baselines", "b"),
        ("hosts", "Staging hosts", "s"),
        ("suites", "Suites", "i"),
        ("workloads", "Workloads", "o"),
        begins=True,
    ),
    _group("Facts", ("facts", "Facts", "f"), ("rules", "Rules", "u")),
    _group("Administration", ("audit", "Audit", "l"), ("tokens", "Tokens", "k", "admin")),
)


def render(shown: HtmlPage, ask: PageRequest[Any], done: str) -> str:
    """Return a page as HTML."""
    principal, service = ask.principal, ask.service
    context: dict[str, Any] = {
        "title": shown.title,
        "table": choose_columns(shown.table) if shown.table else None,
        "error": shown.error,
        "query": ask.query,
        "typed": ask.form,
        "page": ask.page,
        "principal": principal,
        "signed_in": not principal.is_anonymous,
        "done": done,
        "looks": current_preferences(),
        "navigation": [(group, group.visible(principal)) for group in NAVIGATION],
        "revision": service.gate.snapshots.known_revision(),
        "degraded": service.gate.degraded(),
        "form_token": auth.form_field,
        "whole": "HX-Request" not in request.headers,
        **shown.context,
    }
    return environment().get_template(shown.template).render(context)


def show_invisible(value: Any) -> Any:
    """Replace invisible characters by visible ones: control characters, and marks of direction.

    A foreign name must not reverse the text next to it.
    """
    return _INVISIBLE_CHARACTERS.sub("\ufffd", value) if type(value) is str else value


@cache
def environment() -> Environment:
    """Return the template environment."""
    package = package_dir()
    made = Environment(
        loader=FileSystemLoader(
            [package / "kit/ui/templates", *sorted(package.glob("web/templates/*"))]
        ),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=show_invisible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(FILTERS)
    made.globals.update(
        link=link,
        here=current_page_link,
        bare=page_without_query,
        asked_besides=other_parameters,
        asset=lambda name: f"{request.script_root}{UI_PREFIX}{asset_path(name)}",
        style=inline_style,
        browser_zone=BROWSER_ZONE,
        form_token=auth.form_field,
        version=version(),
    )
    return made
