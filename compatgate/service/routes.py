"""List every route of the API, every webhook and every page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from compatgate.kit.http.replies import Reply
from compatgate.service.admission import api as admission
from compatgate.service.attestations import api as attestations
from compatgate.service.audit import api as audit
from compatgate.service.audit import pages as audit_pages
from compatgate.service.baselines import api as baselines
from compatgate.service.baselines import pages as baselines_pages
from compatgate.service.comparison import api as comparison
from compatgate.service.comparison import pages as comparison_pages
from compatgate.service.facts import api as facts
from compatgate.service.facts import pages as facts_pages
from compatgate.service.far import api as far
from compatgate.service.finder import pages as finder_pages
from compatgate.service.gate import api as gate
from compatgate.service.gate import ask_page, decisions_page, solve_api, solve_page
from compatgate.service.gate import pages as gate_pages
from compatgate.service.home import examples
from compatgate.service.home import pages as home_pages
from compatgate.service.identity import api as identity
from compatgate.service.identity import pages as identity_pages
from compatgate.service.manifests import api as manifests
from compatgate.service.matrix import api as matrix
from compatgate.service.matrix import cells_page, document_api, map_page
from compatgate.service.matrix import pages as matrix_pages
from compatgate.service.nodes import api as nodes
from compatgate.service.nodes import pages as nodes_pages
from compatgate.service.notices import api as notices
from compatgate.service.notices import pages as notices_pages
from compatgate.service.preferences import pages as preferences_pages
from compatgate.service.proposals import api as proposals
from compatgate.service.proposals import pages as proposals_pages
from compatgate.service.reports import api as reports
from compatgate.service.reports import pages as reports_pages
from compatgate.service.runs import api as runs
from compatgate.service.runs import history_page, staging_pages
from compatgate.service.runs import pages as runs_pages
from compatgate.service.targets import api as targets
from compatgate.service.targets import pages as targets_pages
from compatgate.service.tokens import api as tokens
from compatgate.service.tokens import pages as tokens_pages
from compatgate.service.triage import api as triage
from compatgate.service.triage import pages as triage_pages
from compatgate.service.upgrades import api as upgrades
from compatgate.service.upgrades import pages as upgrades_pages
from compatgate.service.waivers import api as waivers
from compatgate.service.waivers import pages as waivers_pages
from compatgate.service.web.call import Call
from compatgate.service.web.page import Page
from compatgate.service.web.route import NoQuery, Returns, Route, route
from compatgate.service.webhooks import api as webhooks
from compatgate.service.workbench import pages as workbench_pages

if TYPE_CHECKING:
    from flask import Response

    from compatgate.service.web.call import Service

T = TypeVar("T")


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
    return Reply(call.service.describe())


def _declared(modules: Sequence[ModuleType], kind: type[T]) -> tuple[T, ...]:
    """Return what modules declare of a kind, alone or in tuples, in the order of declaration."""
    found = []
    for value in (value for module in modules for value in vars(module).values()):
        several = value if isinstance(value, tuple) else (value,)
        found += [one for one in several if isinstance(one, kind)]
    return tuple(found)


_APIS = (
    gate,
    solve_api,
    triage,
    manifests,
    attestations,
    targets,
    comparison,
    reports,
    document_api,
    waivers,
    matrix,
    proposals,
    facts,
    runs,
    baselines,
    nodes,
    upgrades,
    notices,
    far,
    audit,
    tokens,
    identity,
)
ROUTES = (*_declared(_APIS, Route), openapi)
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
    "evidence": "Evidence of runs, and the baselines that runs are judged against.",
    "nodes": "Reported nodes, and their drift from targets.",
    "upgrades": "Driver upgrades in waves, freezes, and known-good states.",
    "notices": "Incidents, and notices about them: channels, subscriptions, deliveries.",
    "decisions": "Decisions of the gate, with caller and time.",
    "audit": "The hash-chained log of every change and decision.",
    "tokens": "Access tokens.",
    "sessions": "Sign-in and sessions of people, and the caller of a request.",
    "badges": "Badges: small pictures of the gate's current answer.",
    "hooks": "Webhooks: questions in the formats of other systems.",
}

_DEPLOYING = (
    webhooks.ask_argo_rollouts,
    webhooks.ask_flagger,
    webhooks.ask_generic,
    webhooks.poll_generic,
    webhooks.ask_driver_rollout,
)
HOOKS: tuple[Route, ...] = (admission.validate, *(hook.route for hook in _DEPLOYING))


def views(
    service: Service, desk: admission.AdmissionDesk
) -> tuple[tuple[Route, Callable[[], Response]], ...]:
    """Return each hook with its view, which answers errors in the form of the tool."""
    return (
        (admission.validate, admission.make_view(service, desk)),
        *((hook.route, webhooks.make_view(hook, service)) for hook in _DEPLOYING),
    )


_PAGES = (
    home_pages,
    notices_pages,
    map_page,
    cells_page,
    ask_page,
    solve_page,
    gate_pages,
    triage_pages,
    audit_pages,
    facts_pages,
    tokens_pages,
    targets_pages,
    comparison_pages,
    reports_pages,
    matrix_pages,
    waivers_pages,
    workbench_pages,
    proposals_pages,
    decisions_page,
    runs_pages,
    baselines_pages,
    staging_pages,
    history_page,
    identity_pages,
    preferences_pages,
    examples,
    finder_pages,
    nodes_pages,
    upgrades_pages,
)
PAGES = _declared(_PAGES, Page)
