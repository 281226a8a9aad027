"""List every route of the API, every webhook and every page."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from compatgate.kit.http.replies import Reply
from compatgate.service.admission import api as admission
from compatgate.service.attestations import api as attestations
from compatgate.service.audit import api as audit
from compatgate.service.audit import pages as audit_pages
from compatgate.service.backtests import api as backtests
from compatgate.service.baselines import api as baselines
from compatgate.service.baselines import pages as baselines_pages
from compatgate.service.dependents import api as dependents
from compatgate.service.examples import pages as examples_pages
from compatgate.service.facts import api as facts
from compatgate.service.facts import pages as facts_pages
from compatgate.service.facts import support_page
from compatgate.service.far import api as far
from compatgate.service.finder import pages as finder_pages
from compatgate.service.gate import api as gate
from compatgate.service.gate import ask_page, decisions_page, solve_api, solve_page
from compatgate.service.gate import pages as gate_pages
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
from compatgate.service.notices import incident_pages
from compatgate.service.notices import pages as notices_pages
from compatgate.service.plans import api as plans
from compatgate.service.plans import pages as plans_pages
from compatgate.service.preferences import pages as preferences_pages
from compatgate.service.proposals import api as proposals
from compatgate.service.proposals import approvals_api
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
from compatgate.service.upgrades import calendar_pages
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


ROUTES: tuple[Route, ...] = (
    gate.ask,
    gate.preview,
    gate.what_if,
    solve_api.solve,
    triage.triage,
    manifests.check_manifest,
    gate.show_verdict,
    gate.show_bundle,
    attestations.show_attestation,
    attestations.list_keys,
    gate.stack_badge,
    gate.entry_badge,
    targets.list_targets,
    *targets.TARGET_ROUTES,
    targets.list_target_pools,
    plans.plan,
    reports.report,
    targets.list_pools,
    document_api.list_entries,
    *document_api.ENTRY_ROUTES,
    dependents.list_dependents,
    waivers.list_waivers,
    *waivers.WAIVER_ROUTES,
    matrix.list_revisions,
    matrix.show_revision,
    matrix.diff_revisions,
    backtests.backtest,
    matrix.import_matrix,
    matrix.sync_matrix,
    matrix.export_matrix,
    matrix.packages_report,
    *proposals.ROUTES,
    approvals_api.list_approvals,
    approvals_api.show_approval,
    approvals_api.approve_change,
    approvals_api.refuse_change,
    facts.list_tables,
    facts.list_facts,
    facts.show_fact,
    facts.list_rules,
    facts.show_rule,
    runs.list_runs,
    runs.submit_runs,
    runs.import_report,
    runs.show_run,
    runs.show_logs,
    runs.take_samples,
    runs.cancel_run,
    runs.discard_run,
    runs.rerun,
    runs.list_hosts,
    runs.list_suites,
    runs.list_workloads,
    runs.list_metric_histories,
    runs.list_evidence,
    baselines.list_baselines,
    baselines.show_baseline,
    baselines.approve_baseline,
    baselines.refuse_baseline,
    baselines.export_baselines,
    baselines.import_baselines,
    nodes.list_nodes,
    nodes.report_nodes,
    nodes.report_health,
    nodes.show_node,
    nodes.remove_node,
    nodes.list_drift,
    *upgrades.ROUTES,
    *notices.ROUTES,
    gate.list_decisions,
    gate.show_decision,
    far.deliver_decisions,
    audit.list_audit,
    audit.verify_audit,
    tokens.list_tokens,
    tokens.create_token,
    tokens.rotate_token,
    tokens.revoke_token,
    identity.describe_sign_in,
    identity.open_session,
    identity.list_sessions,
    identity.end_session,
    identity.end_own_session,
    identity.show_caller,
    openapi,
)
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


PAGES: tuple[Page, ...] = (
    home_pages.show_home,
    *incident_pages.PAGES,
    *notices_pages.PAGES,
    map_page.show_matrix,
    cells_page.show_cells,
    ask_page.show_question,
    ask_page.paste_question,
    ask_page.log_question,
    solve_page.show_solve,
    gate_pages.show_what_if,
    triage_pages.show_triage,
    triage_pages.show_causes,
    audit_pages.show_audit,
    audit_pages.show_verification,
    facts_pages.show_tables,
    support_page.show_support,
    facts_pages.show_table,
    facts_pages.show_record,
    facts_pages.show_rules,
    facts_pages.show_rule,
    tokens_pages.show_tokens,
    tokens_pages.create_token,
    tokens_pages.revoke_token,
    tokens_pages.rotate_token,
    targets_pages.show_targets,
    targets_pages.show_target,
    targets_pages.show_packages,
    plans_pages.show_plan,
    reports_pages.show_report,
    matrix_pages.show_entries,
    matrix_pages.show_entry,
    matrix_pages.change_entry,
    waivers_pages.show_waivers,
    waivers_pages.show_waiver,
    waivers_pages.end_waiver,
    *workbench_pages.PAGES,
    matrix_pages.show_revisions,
    matrix_pages.show_revision,
    matrix_pages.show_difference,
    *proposals_pages.PAGES,
    decisions_page.show_decisions,
    gate_pages.show_verdict,
    runs_pages.show_runs,
    runs_pages.show_run_form,
    runs_pages.submit_run,
    runs_pages.show_comparison,
    runs_pages.show_run,
    runs_pages.show_run_state,
    runs_pages.show_run_step,
    runs_pages.follow_log,
    runs_pages.cancel_run,
    runs_pages.discard_run,
    runs_pages.repeat_run,
    baselines_pages.show_baselines,
    baselines_pages.show_baseline,
    baselines_pages.approve_baseline,
    baselines_pages.refuse_baseline,
    staging_pages.show_hosts,
    staging_pages.show_suites,
    staging_pages.show_workloads,
    staging_pages.show_workload,
    history_page.show_history,
    tokens_pages.show_sign_in,
    tokens_pages.sign_in,
    tokens_pages.sign_out,
    identity_pages.begin_sign_in,
    identity_pages.finish_sign_in,
    identity_pages.show_signed_out,
    *preferences_pages.PAGES,
    *examples_pages.PAGES,
    finder_pages.show_find,
    finder_pages.show_search,
    finder_pages.paste_text,
    home_pages.show_keys,
    nodes_pages.show_nodes,
    nodes_pages.show_node,
    nodes_pages.remove_node,
    nodes_pages.show_drift,
    *upgrades_pages.PAGES,
    *calendar_pages.PAGES,
    home_pages.show_not_found,  # the last one: whatever is no other page
)
