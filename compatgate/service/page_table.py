"""List every page of the web interface."""

from __future__ import annotations

from compatgate.service.audit import pages as audit
from compatgate.service.baselines import pages as baselines
from compatgate.service.facts import pages as facts
from compatgate.service.gate import ask_page
from compatgate.service.gate import pages as gate
from compatgate.service.home import pages as home
from compatgate.service.matrix import pages as matrix
from compatgate.service.matrix import revision_pages
from compatgate.service.nodes import pages as nodes
from compatgate.service.runs import pages as runs
from compatgate.service.runs import staging_pages
from compatgate.service.targets import pages as targets
from compatgate.service.tokens import pages as tokens
from compatgate.service.waivers import pages as waivers
from compatgate.service.web.page import Page

PAGES: tuple[Page, ...] = (
    home.show_home,
    matrix.show_matrix,
    ask_page.show_question,
    ask_page.paste_question,
    ask_page.log_question,
    gate.show_what_if,
    audit.show_audit,
    audit.show_verification,
    facts.show_tables,
    facts.show_table,
    facts.show_record,
    facts.show_rules,
    facts.show_rule,
    tokens.show_tokens,
    tokens.create_token,
    tokens.revoke_token,
    targets.show_targets,
    targets.show_target,
    targets.show_packages,
    matrix.show_entries,
    matrix.show_entry,
    matrix.change_entry,
    waivers.show_waivers,
    waivers.show_waiver,
    waivers.begin_waiver,
    waivers.create_waiver,
    waivers.end_waiver,
    revision_pages.show_revisions,
    revision_pages.show_revision,
    revision_pages.show_difference,
    gate.show_decisions,
    gate.show_verdict,
    runs.show_runs,
    runs.show_run_form,
    runs.submit_run,
    runs.show_comparison,
    runs.show_run,
    runs.show_run_state,
    runs.show_run_step,
    runs.follow_log,
    runs.cancel_run,
    runs.repeat_run,
    baselines.show_baselines,
    baselines.show_baseline,
    baselines.approve_baseline,
    baselines.refuse_baseline,
    staging_pages.show_hosts,
    staging_pages.show_suites,
    staging_pages.show_workloads,
    staging_pages.show_workload,
    tokens.show_sign_in,
    tokens.sign_in,
    tokens.sign_out,
    tokens.set_theme,
    home.search,
    home.show_keys,
    nodes.show_nodes,
    nodes.show_node,
    nodes.remove_node,
    nodes.show_drift,
    home.show_not_found,  # the last one: whatever is no other page
)
