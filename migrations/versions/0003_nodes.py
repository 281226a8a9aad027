"""Nodes as their witnesses report them.

Revision 0003, after 0002.
"""

import sqlalchemy as sa
from alembic import op

from compatgate.kit.database.tables import UtcTime

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "nodes",
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("driver", sa.Text(), nullable=True, comment="That counts; null: not known"),
        sa.Column(
            "gpus", sa.Text(), nullable=False, comment="JSON: SKUs that count, each with its number"
        ),
        sa.Column("skus", sa.Text(), nullable=False, comment="|SKU|SKU|, for filters"),
        sa.Column("disagrees", sa.Boolean(), nullable=False, comment="Witnesses disagree"),
        sa.Column("disagreements", sa.Text(), nullable=False, comment="JSON: in sentences"),
        sa.Column("target", sa.Text(), nullable=True, comment="That the node's annotation names"),
        sa.Column("labels", sa.Text(), nullable=False, comment="JSON: last reported"),
        sa.Column("witnesses", sa.Text(), nullable=False, comment="JSON: what each says, and when"),
        sa.Column("reported_by", sa.Text(), nullable=False, comment="Name of the token, last"),
        sa.Column("first_seen_at", UtcTime(), nullable=False),
        sa.Column("seen_at", UtcTime(), nullable=False, comment="By any witness"),
        sa.Column("since", UtcTime(), nullable=False, comment="Of the present driver and GPUs"),
        sa.PrimaryKeyConstraint("cluster", "name", name="pk_nodes"),
    )
    op.create_index("ix_nodes_seen_at", "nodes", ["seen_at"])


def downgrade() -> None:
    op.drop_table("nodes")
