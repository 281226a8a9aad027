"""Hand alembic the connection that `schema` opened, and the tables of every capability.

To write a new migration: ``python -m compatgate.kit.database.tables "what changes"``.
"""

from alembic import context

from compatgate.kit.database.tables import Base
from compatgate.service.audit import repository as audit
from compatgate.service.baselines import repository as baselines
from compatgate.service.gate import batches
from compatgate.service.gate import repository as gate
from compatgate.service.identity import repository as identity
from compatgate.service.matrix import models as matrix
from compatgate.service.nodes import health
from compatgate.service.nodes import repository as nodes
from compatgate.service.notices import models as notices
from compatgate.service.proposals import models as proposals
from compatgate.service.runs import discards, evidence
from compatgate.service.runs import models as runs
from compatgate.service.tokens import repository as tokens
from compatgate.service.upgrades import models as upgrades

CAPABILITIES = (
    audit, baselines, batches, discards, evidence, gate, health, identity, matrix, nodes, notices,
    proposals, runs, tokens, upgrades,
)  # fmt: skip
"""Modules that define tables; importing them fills the metadata."""
UNREAD = frozenset(
    {
        "notice_channels", "notice_deliveries", "notice_items", "notice_subscriptions",
        "preferences",
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
