"""What a judged run was bound to, and runs that a person has discarded.

Revision 0012, after 0011. Rows of earlier runs have null: what they were bound to is unknown.
"""

import sqlalchemy as sa
from alembic import op

from compatgate.kit.database.tables import BigKey, UtcTime

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "evidence",
        sa.Column(
            "content",
            sa.Text(),
            nullable=True,
            comment="Digest of the GPU content; null: unknown",
        ),
    )
    op.add_column(
        "evidence",
        sa.Column(
            "bound",
            sa.Text(),
            nullable=True,
            comment="JSON: what the run was bound to; null: before 0012",
        ),
    )
    op.create_index(op.f("ix_evidence_content"), "evidence", ["content"])
    op.create_table(
        "discarded_runs",
        sa.Column("seq", BigKey, nullable=False),
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("discarded_by", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("discarded_at", UtcTime(), nullable=False),
        sa.ForeignKeyConstraint(["run"], ["runs.id"], name="fk_discarded_runs_run"),
        sa.PrimaryKeyConstraint("seq", name="pk_discarded_runs"),
        sa.UniqueConstraint("run", name="uq_discarded_runs_run"),
    )


def downgrade() -> None:
    op.drop_table("discarded_runs")
    op.drop_index(op.f("ix_evidence_content"), table_name="evidence")
    op.drop_column("evidence", "bound")
    op.drop_column("evidence", "content")
