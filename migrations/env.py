"""Hand alembic the connection that `schema` opened, and the tables of every capability.

To write a new migration: ``python -m compatgate.kit.database.tables "what changes"``.
"""

from alembic import context

from compatgate.kit.database.tables import Base
from compatgate.service.access import sessions as identity
from compatgate.service.access import token_table as tokens
from compatgate.service.attention import repository as notices
from compatgate.service.audit import chain as audit
from compatgate.service.changes.upgrades import models as upgrades
from compatgate.service.gate.decisions import batches
from compatgate.service.matrix.documents import models as matrix
from compatgate.service.matrix.proposals import repository as proposals
from compatgate.service.nodes import health
from compatgate.service.nodes import repository as nodes
from compatgate.service.runs.evidence import baselines, evidence
from compatgate.service.runs.queue import models as runs

CAPABILITIES = (
    audit, baselines, batches, evidence, health, identity, matrix, nodes, notices,
    proposals, runs, tokens, upgrades,
)  # fmt: skip
"""Modules that define tables; importing them fills the metadata."""
UNREAD = frozenset(
    {
        "freezes", "notice_channels", "notice_deliveries", "notice_items",
        "notice_subscriptions", "preferences",
    }
)  # fmt: skip
"""Tables of dropped features; the migration of the next release drops them."""

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    compare_type=True,
    include_name=lambda name, kind, _: kind != "table" or name not in UNREAD,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
