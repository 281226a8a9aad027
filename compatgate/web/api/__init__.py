"""Every route of ``/api/v1``, in one table."""

from __future__ import annotations

from compatgate.web.api import (
    audit,
    decisions,
    description,
    entries,
    facts,
    gate,
    matrix,
    pools,
    revisions,
    rules,
    targets,
    tokens,
    verdicts,
    waivers,
)
from compatgate.web.route import Route

ROUTES: tuple[Route, ...] = (
    gate.ask,
    gate.preview,
    verdicts.show_verdict,
    targets.list_targets,
    *targets.documents,
    targets.list_target_pools,
    pools.list_pools,
    entries.list_entries,
    *entries.documents,
    waivers.list_waivers,
    *waivers.documents,
    revisions.list_revisions,
    revisions.show_revision,
    revisions.diff_revisions,
    matrix.import_matrix,
    matrix.export_matrix,
    facts.list_tables,
    facts.list_facts,
    facts.show_fact,
    rules.list_rules,
    rules.show_rule,
    decisions.list_decisions,
    decisions.show_decision,
    audit.list_audit,
    audit.verify_audit,
    tokens.list_tokens,
    tokens.create_token,
    tokens.revoke_token,
    description.openapi,
)

TAGS: dict[str, str] = {
    "gate": "Ask whether a stack may run, and read verdicts.",
    "targets": "Places to run: pools of GPUs with their driver, and a policy.",
    "entries": "The blessed matrix: component constraints by target.",
    "waivers": "Named exceptions to rules, with an owner and an end.",
    "matrix": "The matrix as a whole, and its history.",
    "facts": "What the vendors publish, and the rules that the gate makes of it.",
    "decisions": "What the gate answered, to whom and when.",
    "audit": "The hash-chained log of every change and decision.",
    "tokens": "Access tokens.",
}
