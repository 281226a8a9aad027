"""List every route of the API and every webhook."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from compatgate.kit.http.replies import Reply
from compatgate.service.admission import api as admission
from compatgate.service.attestations import api as attestations
from compatgate.service.audit import api as audit
from compatgate.service.baselines import api as evidence
from compatgate.service.facts import api as facts
from compatgate.service.gate import api as gate
from compatgate.service.matrix import api as matrix
from compatgate.service.nodes import api as nodes
from compatgate.service.runs import api as runs
from compatgate.service.targets import api as targets
from compatgate.service.tokens import api as tokens
from compatgate.service.waivers import api as waivers
from compatgate.service.web.call import Call
from compatgate.service.web.route import NoQuery, Returns, Route, route
from compatgate.service.webhooks import api as webhooks

if TYPE_CHECKING:
    from flask import Response

    from compatgate.service.web.call import Service


@route(
    "GET",
    "/openapi.json",
    scope=None,
    tag="gate",
    returns=Returns(dict[str, Any], "This description", etag=True),
)
def openapi(call: Call[NoQuery]) -> Reply:
    """Describe this API (OpenAPI 3.1)."""
    return Reply(call.service.description)


ROUTES: tuple[Route, ...] = (
    gate.ask,
    gate.preview,
    gate.what_if,
    gate.show_verdict,
    attestations.show_attestation,
    attestations.list_keys,
    gate.stack_badge,
    gate.entry_badge,
    targets.list_targets,
    *targets.documents,
    targets.list_target_pools,
    targets.list_pools,
    matrix.list_entries,
    *matrix.documents,
    waivers.list_waivers,
    *waivers.documents,
    matrix.list_revisions,
    matrix.show_revision,
    matrix.diff_revisions,
    matrix.import_matrix,
    matrix.export_matrix,
    matrix.packages_report,
    facts.list_tables,
    facts.list_facts,
    facts.show_fact,
    facts.list_rules,
    facts.show_rule,
    runs.list_runs,
    runs.submit_runs,
    runs.show_run,
    runs.show_logs,
    runs.take_samples,
    runs.cancel_run,
    runs.rerun,
    runs.list_hosts,
    runs.list_suites,
    runs.list_workloads,
    runs.list_evidence,
    evidence.list_baselines,
    evidence.show_baseline,
    evidence.approve_baseline,
    evidence.refuse_baseline,
    evidence.export_baselines,
    evidence.import_baselines,
    nodes.list_nodes,
    nodes.report_nodes,
    nodes.show_node,
    nodes.remove_node,
    nodes.list_drift,
    gate.list_decisions,
    gate.show_decision,
    audit.list_audit,
    audit.verify_audit,
    tokens.list_tokens,
    tokens.create_token,
    tokens.revoke_token,
    openapi,
)
TAGS: dict[str, str] = {
    "gate": "Ask whether a stack may run, and read verdicts.",
    "targets": "Targets: pools of GPUs with their drivers, and a policy.",
    "entries": "The blessed matrix: component constraints by target.",
    "waivers": "Waivers: exceptions to rules, with an owner and an expiry date.",
    "matrix": "The matrix as a whole, and its history.",
    "facts": "Facts from vendors, and the rules that use them.",
    "runs": "Canary runs on staging hosts: submit, follow and cancel them.",
    "evidence": "Evidence of runs, and the baselines that runs are judged against.",
    "nodes": "Reported nodes, and their drift from targets.",
    "decisions": "Decisions of the gate, with caller and time.",
    "audit": "The hash-chained log of every change and decision.",
    "tokens": "Access tokens.",
    "badges": "Badges: small pictures of the gate's current answer.",
    "hooks": "Webhooks: questions in the forms of other systems.",
}


_DEPLOYING = (
    webhooks.ask_argo_rollouts,
    webhooks.ask_flagger,
    webhooks.ask_generic,
    webhooks.poll_generic,
    webhooks.ask_driver_rollout,
)
HOOKS: tuple[Route, ...] = (admission.validate, *(hook.route for hook in _DEPLOYING))


def views(service: Service) -> tuple[tuple[Route, Callable[[], Response]], ...]:
    """Return each hook with its view, which answers errors in the form of the tool."""
    return (
        (admission.validate, admission.make_view(service)),
        *((hook.route, webhooks.make_view(hook, service)) for hook in _DEPLOYING),
    )
