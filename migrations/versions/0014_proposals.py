"""Proposals in place of changes that wait for a second person, and the proposal of a revision.

Revision 0014, after 0013. Changes that wait, and those that were decided, become proposals of the
same id.
"""

import sqlalchemy as sa
from alembic import op

from compatgate.kit.database.tables import BigKey, UtcTime

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

_COPY = """
INSERT INTO proposals (id, digest, state, made_at, changed_at, expires_at, author, identity, reason,
    action, targets, asking, automatic, edits, decided_by, decided_at, revision)
SELECT id, digest, CASE state WHEN 'waiting' THEN 'open' WHEN 'approved' THEN 'merged'
    ELSE 'closed' END, made_at, made_at, expires_at, author, identity, reason, action, targets,
    targets, :yes, edits, decided_by, decided_at, revision
FROM approvals
"""
_EVENTS = """
INSERT INTO proposal_events (proposal, at, actor, identity, action, digest, text)
SELECT id, made_at, author, identity, 'open', digest, reason FROM approvals
"""
_DECIDED = """
INSERT INTO proposal_events (proposal, at, actor, identity, action, digest, text)
SELECT id, decided_at, decided_by, '', :action, digest, '' FROM approvals WHERE state = :state
"""
_NAMED = """
UPDATE revisions SET proposal = (SELECT id FROM approvals WHERE revision = revisions.number)
WHERE number IN (SELECT revision FROM approvals WHERE revision IS NOT NULL)
"""
_BACK = """
INSERT INTO approvals (id, digest, state, made_at, expires_at, author, identity, reason, action,
    targets, edits, decided_by, decided_at, revision)
SELECT id, digest, CASE state WHEN 'open' THEN 'waiting' WHEN 'merged' THEN 'approved'
    ELSE 'refused' END, made_at, COALESCE(expires_at, made_at), author, identity, reason, action,
    asking, edits, decided_by, decided_at, revision
FROM proposals
"""


def upgrade() -> None:
    op.create_table(
        "proposals",
        sa.Column("id", sa.Text(), nullable=False, comment="pr_..., by time; ap_... before 0014"),
        sa.Column("digest", sa.Text(), nullable=False, comment="SHA-256 of the edits, hex"),
        sa.Column("state", sa.Text(), nullable=False, comment="open, merged or closed"),
        sa.Column("made_at", UtcTime(), nullable=False),
        sa.Column("changed_at", UtcTime(), nullable=False, comment="Of the present edits"),
        sa.Column("expires_at", UtcTime(), nullable=True, comment="Null: never"),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("identity", sa.Text(), nullable=False, comment="Of the author; others approve"),
        sa.Column("reason", sa.Text(), nullable=False, comment="Why, in the author's words"),
        sa.Column(
            "action",
            sa.Text(),
            nullable=False,
            comment="Of the revision: merge, revert, ...",
        ),
        sa.Column("targets", sa.Text(), nullable=False, comment="Concerned, separated by spaces"),
        sa.Column(
            "asking", sa.Text(), nullable=False, comment="Whose policies asked for a proposal"
        ),
        sa.Column("base", sa.Integer(), nullable=True, comment="Revision that the author saw"),
        sa.Column("automatic", sa.Boolean(), nullable=False, comment="The last approval merges it"),
        sa.Column("edits", sa.Text(), nullable=False, comment="JSON: documents before and after"),
        sa.Column("decided_by", sa.Text(), nullable=True, comment="Who merged or closed it"),
        sa.Column("decided_at", UtcTime(), nullable=True),
        sa.Column("revision", sa.Integer(), nullable=True, comment="That it became"),
        sa.Column(
            "override",
            sa.Text(),
            nullable=True,
            comment="Why it was merged without the evidence that the policy asks for",
        ),
        sa.Column("backtest", sa.Text(), nullable=True, comment="JSON of the last backtest"),
        sa.Column("backtest_digest", sa.Text(), nullable=True, comment="Of the edits it tested"),
        sa.PrimaryKeyConstraint("id", name="pk_proposals"),
    )
    op.create_index("ix_proposals_digest", "proposals", ["digest"])
    op.create_index("ix_proposals_state_id", "proposals", ["state", "id"])
    op.create_table(
        "proposal_events",
        sa.Column("id", BigKey, nullable=False),
        sa.Column("proposal", sa.Text(), nullable=False),
        sa.Column("at", UtcTime(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("identity", sa.Text(), nullable=False),
        sa.Column(
            "action",
            sa.Text(),
            nullable=False,
            comment="open, change, comment, approve, retract, merge or close",
        ),
        sa.Column("digest", sa.Text(), nullable=False, comment="Of the edits then"),
        sa.Column("text", sa.Text(), nullable=False, comment="In the actor's words; empty: none"),
        sa.PrimaryKeyConstraint("id", name="pk_proposal_events"),
        sa.ForeignKeyConstraint(["proposal"], ["proposals.id"], name="fk_proposal_events_proposal"),
    )
    op.create_index("ix_proposal_events_proposal", "proposal_events", ["proposal"])
    op.add_column(
        "revisions",
        sa.Column("proposal", sa.Text(), nullable=True, comment="Merged; null: made directly"),
    )
    connection = op.get_bind()
    if connection.dialect.name == "postgresql":
        actions = "create, change, delete, import, merge, revert"
        op.alter_column("revisions", "action", existing_type=sa.Text(), comment=actions)
    connection.execute(sa.text(_COPY), {"yes": True})
    connection.execute(sa.text(_EVENTS))
    for state, action in (("approved", "approve"), ("approved", "merge"), ("refused", "close")):
        connection.execute(sa.text(_DECIDED), {"state": state, "action": action})
    connection.execute(sa.text(_NAMED))
    op.drop_table("approvals")


def downgrade() -> None:
    op.create_table(
        "approvals",
        sa.Column("id", sa.Text(), nullable=False, comment="ap_..."),
        sa.Column("digest", sa.Text(), nullable=False, comment="SHA-256 of the edits, hex"),
        sa.Column("state", sa.Text(), nullable=False, comment="waiting, approved or refused"),
        sa.Column("made_at", UtcTime(), nullable=False),
        sa.Column("expires_at", UtcTime(), nullable=False),
        sa.Column("author", sa.Text(), nullable=False, comment="Name of the first person"),
        sa.Column(
            "identity",
            sa.Text(),
            nullable=False,
            comment="Of the first person; another one approves",
        ),
        sa.Column("reason", sa.Text(), nullable=False, comment="Why, in the author's words"),
        sa.Column("action", sa.Text(), nullable=False, comment="create, change, delete or import"),
        sa.Column(
            "targets", sa.Text(), nullable=False, comment="Whose policies ask, separated by spaces"
        ),
        sa.Column("edits", sa.Text(), nullable=False, comment="JSON: documents before and after"),
        sa.Column("decided_by", sa.Text(), nullable=True),
        sa.Column("decided_at", UtcTime(), nullable=True),
        sa.Column("revision", sa.Integer(), nullable=True, comment="That it became"),
        sa.PrimaryKeyConstraint("id", name="pk_approvals"),
    )
    op.create_index("ix_approvals_digest", "approvals", ["digest"])
    op.get_bind().execute(sa.text(_BACK))
    op.drop_column("revisions", "proposal")
    op.drop_table("proposal_events")
    op.drop_table("proposals")
