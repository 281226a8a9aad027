"""List every page of the web interface."""

from __future__ import annotations

from compatgate.service.audit import pages as audit_pages
from compatgate.service.baselines import pages as baselines_pages
from compatgate.service.facts import pages as facts_pages
from compatgate.service.gate import ask_page
from compatgate.service.gate import pages as gate_pages
from compatgate.service.home import pages as home_pages
from compatgate.service.matrix import pages as matrix_pages
from compatgate.service.matrix import revision_pages
from compatgate.service.nodes import pages as nodes_pages
from compatgate.service.runs import pages as runs_pages
from compatgate.service.runs import staging_pages
from compatgate.service.targets import pages as targets_pages
from compatgate.service.tokens import pages as tokens_pages
from compatgate.service.waivers import pages as waivers_pages
from compatgate.service.web.page import Page

PAGES: tuple[Page, ...] = (
    home_pages.show_home,
    matrix_pages.show_matrix,
    ask_page.show_question,
    ask_page.paste_question,
    ask_page.log_question,
    gate_pages.show_what_if,
    audit_pages.show_audit,
    audit_pages.show_verification,
    facts_pages.show_tables,
    facts_pages.show_table,
    facts_pages.show_record,
    facts_pages.show_rules,
    facts_pages.show_rule,
    tokens_pages.show_tokens,
    tokens_pages.create_token,
    tokens_pages.revoke_token,
    targets_pages.show_targets,
    targets_pages.show_target,
    targets_pages.show_packages,
    matrix_pages.show_entries,
    matrix_pages.show_entry,
    matrix_pages.change_entry,
    waivers_pages.show_waivers,
    waivers_pages.show_waiver,
    waivers_pages.begin_waiver,
    waivers_pages.create_waiver,
    waivers_pages.end_waiver,
    revision_pages.show_revisions,
    revision_pages.show_revision,
    revision_pages.show_difference,
    gate_pages.show_decisions,
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
    runs_pages.repeat_run,
    baselines_pages.show_baselines,
    baselines_pages.show_baseline,
    baselines_pages.approve_baseline,
    baselines_pages.refuse_baseline,
    staging_pages.show_hosts,
    staging_pages.show_suites,
    staging_pages.show_workloads,
    staging_pages.show_workload,
    tokens_pages.show_sign_in,
    tokens_pages.sign_in,
    tokens_pages.sign_out,
    tokens_pages.set_theme,
    home_pages.search,
    home_pages.show_keys,
    nodes_pages.show_nodes,
    nodes_pages.show_node,
    nodes_pages.remove_node,
    nodes_pages.show_drift,
    home_pages.show_not_found,  # the last one: whatever is no other page
)
