"""Find every route of the API, every webhook and every page, by the names of their modules.

A capability declares routes in ``api.py`` or ``..._api.py``, `compatgate.web.pages` has the pages;
nothing else lists them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from datetime import date, datetime
from functools import cache
from importlib import import_module
from pkgutil import iter_modules, walk_packages
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import msgspec
from msgspec import structs

from compatgate import service as rooms
from compatgate.kit.database.tables import Page as Part
from compatgate.kit.http.links import HOOKS_PREFIX
from compatgate.kit.http.replies import Reply
from compatgate.kit.http.route import Call, NoQuery, Returns, Route, RouteOf, route
from compatgate.kit.ui.tables import (
    Column,
    EmptyNotice,
    Kind,
    Listing,
    PagedTableQuery,
    fetch_rows,
    make_list_table,
)
from compatgate.service.gate.questions.api import QUESTION, VERDICT
from compatgate.web import admission_hook as admission
from compatgate.web import pages
from compatgate.web.deploy_hooks import api as webhooks
from compatgate.web.openapi import describe_api
from compatgate.web.page import HtmlPage, Page, PageOf, PageRequest
from compatgate.web.question_app import answer_here
from compatgate.web.service import Service

if TYPE_CHECKING:
    from flask import Response

    from compatgate.web.service import Service

T = TypeVar("T")
_DECLARING = re.compile(r"[._]api$")
TAGS: dict[str, str] = {
    "gate": "Ask whether a stack may run, and read verdicts.",
    "targets": "Targets: pools of GPUs with their drivers, and a policy.",
    "entries": "The blessed matrix: component constraints by target.",
    "waivers": "Waivers: exceptions to rules, with an owner and an expiry date.",
    "matrix": "The matrix as a whole, and its history.",
    "proposals": "Changes of the matrix that are reviewed, approved and merged; reverts.",
    "facts": "Facts from vendors, and the rules that use them.",
    "runs": "Canary runs on staging hosts: submit, follow and cancel them.",
    "work": "Workers: lease the runs of a host, and write those that are leased.",
    "evidence": "Evidence of runs, and the baselines that runs are judged against.",
    "nodes": "Reported nodes, and their drift from targets.",
    "upgrades": "Driver upgrades in waves.",
    "notices": "Incidents: what needs attention, grouped by cause.",
    "decisions": "Decisions of the gate, with caller and time.",
    "audit": "The hash-chained log of every change and decision.",
    "tokens": "Access tokens.",
    "sessions": "Sign-in and sessions of people, and the caller of a request.",
    "badges": "Badges: small pictures of the gate's current answer.",
    "hooks": "Webhooks: questions in the formats of other systems.",
}
_DEPLOYING = [one for one in vars(webhooks).values() if isinstance(one, webhooks.Hook)]
HOOKS: tuple[Route, ...] = (admission.validate, *(hook.route for hook in _DEPLOYING))


def derive_pages(routes: Sequence[Route]) -> list[Page]:
    """Return the pages of the routes that name an item of the navigation."""
    paged = [route for route in routes if route.nav]
    paths = {route.template for route in paged}
    return [
        _list_page(route, paths) if route.returns.paged else _object_page(route) for route in paged
    ]


def _list_page(route: Route, paths: Collection[str]) -> Page:
    """Return a page with a table; its first column leads to the page of the object."""
    title = route.template.strip("/").replace("-", " ")
    columns = []
    for name in route.columns:
        (kind,) = [
            field.type for field in structs.fields(route.returns.model) if field.name == name
        ]
        kinds, label = {kind, *get_args(kind)}, name.replace("_", " ").capitalize()
        form: Kind = "number" if kinds & {int, float} else "text"
        columns.append(Column(name, label, "time" if kinds & {datetime, date} else form))
    if f"{route.template}/{{{columns[0].key}}}" in paths:
        columns[0] = structs.replace(columns[0], to=route.template.strip("/"))

    def show(ask: PageRequest[PagedTableQuery]) -> HtmlPage:
        def fetch(*, cursor: str | None, limit: int) -> Part[Any]:
            part = _ask(ask, route, cursor=cursor, limit=limit)
            items = msgspec.convert(part["items"], list[route.returns.model])  # type: ignore[name-defined]
            return Part(tuple(items), part["next"])

        found = fetch_rows(fetch, ask.query.cursor)
        listing = Listing(tuple(columns), EmptyNotice(f"No {title} yet."), title)
        table = make_list_table(listing, found, ask.query)
        return HtmlPage("listing.html", title.capitalize(), {}, table)

    show.__name__ = f"{route.name}_page"
    return Page(show, route.flask_rule, route.scope, nav=route.nav, query=PagedTableQuery)


def _object_page(route: Route) -> Page:
    """Return a page with the members of an object."""

    def show(ask: PageRequest[Any]) -> HtmlPage:
        answer = msgspec.convert(_ask(ask, route), route.returns.model)
        names = route.columns or answer.__struct_fields__
        members = {}
        for name in names:
            value = getattr(answer, name)
            text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else value
            members[name.replace("_", " ")] = text
        title = " ".join(map(str, ask.args.values()))
        return HtmlPage("members.html", title, {"members": members})

    show.__name__ = f"{route.name}_page"
    return Page(show, route.flask_rule, route.scope, nav=route.nav)


def _ask(ask: PageRequest[Any], route: Route, **query: Any) -> Any:
    """Return the answer of a route's handler as plain data."""
    service, asked = ask.service, route.query(**query)
    call = Call(service, service.settings, route, ask.principal, ask.args, asked)
    return msgspec.to_builtins(route.handler(call).body)


@route(
    "POST",
    "/gate",
    scope="gate",
    tag="gate",
    targets="checked",
    body=QUESTION,
    returns=VERDICT,
    errors=(404, 502, 503, 504),
)
def ask(call: Call[NoQuery]) -> Reply:
    """Decide whether a stack may run on a target or pool.

    The gate logs the decision before it answers. The same question gives the same verdict id.

    While its database is unavailable, the gate decides on the last confirmed snapshot,
    and the answer has `degraded`. 503: that snapshot is older than the operator allows
    (`serve --max-stale`), or the decision cannot be recorded.

    The gate reads an `image` whose registry the operator allows (`serve --registry`). The image's
    stack wins over the stated one, a contradiction is a finding, and the answer's `image` has the
    digest. Any other image is a label: the answer says that it was not read, and the question must
    state the stack.
    """
    return Reply(answer_here(call.raw(), call.principal, call.use(Service)))


@route(
    "GET",
    "/openapi.json",
    scope=None,
    tag="gate",
    targets="free",
    returns=Returns(dict[str, Any], "This description", etag=True),
)
def openapi(call: Call[NoQuery]) -> Reply:
    """Describe this API (OpenAPI 3.1)."""
    return Reply(_describe())


@cache
def _describe() -> bytes:
    """Return the OpenAPI document, made once per process."""
    return msgspec.json.encode(describe_api((*ROUTES, *HOOKS), TAGS))


def _declaring_modules() -> list[ModuleType]:
    """Import the modules that declare routes or pages."""
    routes = (one.name for one in walk_packages(rooms.__path__, f"{rooms.__name__}."))
    shown = (one.name for one in iter_modules(pages.__path__, f"{pages.__name__}."))
    return [import_module(name) for name in (*filter(_DECLARING.search, routes), *shown)]


_MODULES = _declaring_modules()


def _declared(kind: type[T]) -> list[T]:
    """Return what the modules declare of a kind, alone or in tuples, in their order."""
    declared: dict[int, T] = {}
    for value in (value for module in _MODULES for value in vars(module).values()):
        several = value if isinstance(value, tuple) else (value,)
        declared |= {id(one): one for one in several if isinstance(one, kind)}
    return [*declared.values()]


ROUTES: tuple[Route, ...] = tuple(
    sorted(
        (one for one in (*_declared(RouteOf), ask, openapi) if one.prefix != HOOKS_PREFIX),
        key=lambda one: [*TAGS].index(one.tag),
    )
)


PAGES = (*_declared(PageOf), *derive_pages(ROUTES))


def views(
    service: Service, desk: admission.AdmissionDesk
) -> tuple[tuple[Route, Callable[[], Response]], ...]:
    """Return each hook with its view, which answers errors in the form of the tool."""
    return (
        (admission.validate, admission.make_view(service, desk)),
        *((hook.route, webhooks.make_view(hook, service)) for hook in _DEPLOYING),
    )
