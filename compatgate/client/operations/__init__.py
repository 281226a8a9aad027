"""List every operation of the API: the methods of both clients.

An operation is a function that makes a `Request` of its arguments. Its name is the ``operationId``
of the OpenAPI description; tests compare the two.
"""

from __future__ import annotations

from compatgate.client.operations import cluster, gate, matrix, notices, proposals, runs, upgrades


class Operations:
    """The operations of a gate, by ``operationId``."""

    ask = gate.ask
    preview = gate.preview
    what_if = gate.what_if
    solve = gate.solve
    triage = gate.triage
    check_manifest = gate.check_manifest
    show_verdict = gate.show_verdict
    show_bundle = gate.show_bundle
    openapi = gate.openapi

    list_targets = matrix.list_targets
    create_target = matrix.create_target
    show_target = matrix.show_target
    change_target = matrix.change_target
    delete_target = matrix.delete_target
    list_approvals = matrix.list_approvals
    show_approval = matrix.show_approval
    approve_change = matrix.approve_change
    refuse_change = matrix.refuse_change
    list_target_pools = matrix.list_target_pools
    plan = matrix.plan
    report = matrix.report
    list_pools = matrix.list_pools

    list_entries = matrix.list_entries
    create_entry = matrix.create_entry
    show_entry = matrix.show_entry
    change_entry = matrix.change_entry
    delete_entry = matrix.delete_entry
    list_dependents = matrix.list_dependents

    list_waivers = matrix.list_waivers
    create_waiver = matrix.create_waiver
    show_waiver = matrix.show_waiver
    change_waiver = matrix.change_waiver
    delete_waiver = matrix.delete_waiver

    backtest = proposals.backtest
    import_matrix = matrix.import_matrix
    sync_matrix = proposals.sync_matrix
    export_matrix = matrix.export_matrix
    packages_report = matrix.packages_report
    list_revisions = matrix.list_revisions
    show_revision = matrix.show_revision
    diff_revisions = matrix.diff_revisions

    list_upgrades = upgrades.list_upgrades
    create_upgrade = upgrades.create_upgrade
    show_upgrade = upgrades.show_upgrade
    may_start = upgrades.may_start
    approve_upgrade = upgrades.approve_upgrade
    retract_upgrade = upgrades.retract_upgrade
    stop_upgrade = upgrades.stop_upgrade
    resume_upgrade = upgrades.resume_upgrade
    roll_back_upgrade = upgrades.roll_back_upgrade
    leave_out_nodes = upgrades.leave_out_nodes
    list_freezes = upgrades.list_freezes
    set_freeze = upgrades.set_freeze
    delete_freeze = upgrades.delete_freeze
    list_known_good = upgrades.list_known_good
    export_known_good = upgrades.export_known_good
    report_health = upgrades.report_health

    list_proposals = proposals.list_proposals
    create_proposal = proposals.create_proposal
    show_proposal = proposals.show_proposal
    change_proposal = proposals.change_proposal
    approve_proposal = proposals.approve_proposal
    retract_approval = proposals.retract_approval
    merge_proposal = proposals.merge_proposal
    backtest_proposal = proposals.backtest_proposal
    close_proposal = proposals.close_proposal
    revert_revision = proposals.revert_revision

    list_tables = gate.list_tables
    list_facts = gate.list_facts
    show_fact = gate.show_fact
    list_rules = gate.list_rules
    show_rule = gate.show_rule

    list_runs = runs.list_runs
    submit_runs = runs.submit_runs
    import_report = runs.import_report
    show_run = runs.show_run
    show_logs = runs.show_logs
    take_samples = runs.take_samples
    cancel_run = runs.cancel_run
    discard_run = runs.discard_run
    rerun = runs.rerun
    list_hosts = runs.list_hosts
    list_suites = runs.list_suites
    list_workloads = runs.list_workloads
    list_metric_histories = runs.list_metric_histories

    list_evidence = runs.list_evidence
    list_baselines = runs.list_baselines
    show_baseline = runs.show_baseline
    approve_baseline = runs.approve_baseline
    refuse_baseline = runs.refuse_baseline

    list_nodes = cluster.list_nodes
    report_nodes = cluster.report_nodes
    show_node = cluster.show_node
    remove_node = cluster.remove_node
    list_drift = cluster.list_drift

    list_incidents = notices.list_incidents
    show_incident = notices.show_incident
    snooze_incident = notices.snooze_incident
    resolve_incident = notices.resolve_incident
    reopen_incident = notices.reopen_incident
    list_channels = notices.list_channels
    show_channel = notices.show_channel
    set_channel = notices.set_channel
    delete_channel = notices.delete_channel
    test_channel = notices.test_channel
    list_subscriptions = notices.list_subscriptions
    show_subscription = notices.show_subscription
    set_subscription = notices.set_subscription
    delete_subscription = notices.delete_subscription
    list_deliveries = notices.list_deliveries

    list_decisions = gate.list_decisions
    show_decision = gate.show_decision
    deliver_decisions = gate.deliver_decisions
    list_audit = gate.list_audit
    verify_audit = gate.verify_audit

    list_tokens = cluster.list_tokens
    create_token = cluster.create_token
    rotate_token = cluster.rotate_token
    revoke_token = cluster.revoke_token

    describe_sign_in = cluster.describe_sign_in
    open_session = cluster.open_session
    list_sessions = cluster.list_sessions
    end_session = cluster.end_session
    end_own_session = cluster.end_own_session
    show_caller = cluster.show_caller

    validate_kubernetes = cluster.validate_kubernetes
    ask_argo_rollouts = cluster.ask_argo_rollouts
    ask_flagger = cluster.ask_flagger
    ask_generic = cluster.ask_generic
    poll_generic = cluster.poll_generic
    ask_driver_rollout = cluster.ask_driver_rollout

    show_attestation = gate.show_attestation
    list_keys = gate.list_keys
    stack_badge = gate.stack_badge
    entry_badge = gate.entry_badge
