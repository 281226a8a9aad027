"""Every operation of the API, in one table: the methods of both clients.

An operation is a function that makes a `Request` of its arguments. Each has the name that the
OpenAPI description gives it (``operationId``); tests compare the two.
"""

from __future__ import annotations

from compatgate.client.operations import (
    entries,
    evidence,
    facts,
    gate,
    history,
    hooks,
    matrix,
    nodes,
    runs,
    targets,
    tokens,
    trust,
    waivers,
)


class Operations:
    """What a gate can be asked, by ``operationId``."""

    ask = gate.ask
    preview = gate.preview
    what_if = gate.what_if
    show_verdict = gate.show_verdict
    openapi = gate.openapi

    list_targets = targets.list_targets
    create_target = targets.create_target
    show_target = targets.show_target
    change_target = targets.change_target
    delete_target = targets.delete_target
    list_target_pools = targets.list_target_pools
    list_pools = targets.list_pools

    list_entries = entries.list_entries
    create_entry = entries.create_entry
    show_entry = entries.show_entry
    change_entry = entries.change_entry
    delete_entry = entries.delete_entry

    list_waivers = waivers.list_waivers
    create_waiver = waivers.create_waiver
    show_waiver = waivers.show_waiver
    change_waiver = waivers.change_waiver
    delete_waiver = waivers.delete_waiver

    import_matrix = matrix.import_matrix
    export_matrix = matrix.export_matrix
    packages_report = matrix.packages_report
    list_revisions = matrix.list_revisions
    show_revision = matrix.show_revision
    diff_revisions = matrix.diff_revisions

    list_tables = facts.list_tables
    list_facts = facts.list_facts
    show_fact = facts.show_fact
    list_rules = facts.list_rules
    show_rule = facts.show_rule

    list_runs = runs.list_runs
    submit_runs = runs.submit_runs
    show_run = runs.show_run
    show_logs = runs.show_logs
    take_samples = runs.take_samples
    cancel_run = runs.cancel_run
    rerun = runs.rerun
    list_hosts = runs.list_hosts
    list_suites = runs.list_suites
    list_workloads = runs.list_workloads

    list_evidence = evidence.list_evidence
    list_baselines = evidence.list_baselines
    show_baseline = evidence.show_baseline
    approve_baseline = evidence.approve_baseline
    refuse_baseline = evidence.refuse_baseline
    export_baselines = evidence.export_baselines
    import_baselines = evidence.import_baselines

    list_nodes = nodes.list_nodes
    report_nodes = nodes.report_nodes
    show_node = nodes.show_node
    remove_node = nodes.remove_node
    list_drift = nodes.list_drift

    list_decisions = history.list_decisions
    show_decision = history.show_decision
    list_audit = history.list_audit
    verify_audit = history.verify_audit

    list_tokens = tokens.list_tokens
    create_token = tokens.create_token
    revoke_token = tokens.revoke_token

    validate_kubernetes = hooks.validate_kubernetes
    ask_argo_rollouts = hooks.ask_argo_rollouts
    ask_flagger = hooks.ask_flagger
    ask_generic = hooks.ask_generic
    poll_generic = hooks.poll_generic
    ask_driver_rollout = hooks.ask_driver_rollout

    show_attestation = trust.show_attestation
    list_keys = trust.list_keys
    stack_badge = trust.stack_badge
    entry_badge = trust.entry_badge
