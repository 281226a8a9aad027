"""Find every route of the API, every webhook and every page, by the names of their modules.

A capability declares routes in ``api.py`` or ``..._api.py``, `compatgate.web.pages` has the pages;
nothing else lists them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pkgutil import iter_modules, walk_packages
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from compatgate import service as rooms
from compatgate.kit.http.call import Call
from compatgate.kit.http.links import HOOKS_PREFIX
from compatgate.kit.http.replies import Reply
from compatgate.kit.http.route import NoQuery, Returns, Route, RouteOf, route
from compatgate.service.gate.questions.api import QUESTION, VERDICT
from compatgate.web import admission_hook as admission
from compatgate.web import pages
from compatgate.web.deploy_hooks import api as webhooks
from compatgate.web.derived_pages import derive_pages
from compatgate.web.openapi import describe_api
from compatgate.web.page import PageOf
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
    "approvals": "Approvals of changes that need a second person: an older form of proposals.",
    "facts": "Facts from vendors, and the rules that use them.",
    "runs": "Canary runs on staging hosts: submit, follow and cancel them.",
    "work": "Workers: lease the runs of a host, and write those that are leased.",
    "evidence": "Evidence of runs, and the baselines that runs are judged against.",
    "nodes": "Reported nodes, and their drift from targets.",
    "upgrades": "Driver upgrades in waves, freezes, and known-good states.",
    "notices": "Incidents: what needs attention, grouped by cause.",
    "decisions": "Decisions of the gate, with caller and time.",
    "audit": "The hash-chained log of every change and decision.",
    "tokens": "Access tokens.",
    "sessions": "Sign-in and sessions of people, and the caller of a request.",
    "badges": "Badges: small pictures of the gate's current answer.",
    "hooks": "Webhooks: questions in the formats of other systems.",
}


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


_DEPLOYING = [one for one in vars(webhooks).values() if isinstance(one, webhooks.Hook)]
HOOKS: tuple[Route, ...] = (admission.validate, *(hook.route for hook in _DEPLOYING))
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
