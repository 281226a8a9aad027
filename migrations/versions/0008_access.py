"""Tokens limited to targets and rotated, sessions that end, changes that wait for a second person.

Revision 0008, after 0007. Tokens that exist stay unlimited. Sessions that exist stay open until
their absolute end, or until they are idle; their secret is not known, so rotating their token does
not end them.
"""

import sqlalchemy as sa
from alembic import op

from compatgate.kit.database.tables import UtcTime

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_TOKENS = ("targets", "rotated_at", "previous_digest", "previous_expires_at")
_SESSIONS = ("seen_at", "secret")


def upgrade() -> None:
    with op.batch_alter_table("tokens") as table:
        table.add_column(
            sa.Column(
                "targets",
                sa.Text(),
                nullable=True,
                comment="Patterns, separated by spaces; null: every target",
            )
        )
        table.add_column(
            sa.Column("rotated_at", UtcTime(), nullable=True, comment="Of the present secret")
        )
        table.add_column(
            sa.Column(
                "previous_digest",
                sa.Text(),
                nullable=True,
                comment="Of the secret before, while it is valid",
            )
        )
        table.add_column(sa.Column("previous_expires_at", UtcTime(), nullable=True))
        table.create_unique_constraint("uq_tokens_previous_digest", ["previous_digest"])
    with op.batch_alter_table("browser_sessions") as table:
        table.add_column(
            sa.Column("seen_at", UtcTime(), nullable=True, comment="To about a minute")
        )
        table.add_column(
            sa.Column(
                "secret",
                sa.Text(),
                nullable=True,
                comment="Digest of the token's secret that opened it; null: opened before 0008",
            )
        )
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


def downgrade() -> None:
    op.drop_table("approvals")
    with op.batch_alter_table("browser_sessions") as table:
        for name in _SESSIONS:
            table.drop_column(name)
    with op.batch_alter_table("tokens") as table:
        table.drop_constraint("uq_tokens_previous_digest", type_="unique")
        for name in _TOKENS:
            table.drop_column(name)
