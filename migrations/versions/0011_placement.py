"""What placement reads of a node: its taints, and when that changed.

Revision 0011, after 0010. Taints are not known until the next report of a node.
"""

import sqlalchemy as sa
from alembic import op

from compatgate.kit.database.tables import UtcTime

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "nodes",
        sa.Column(
            "taints", sa.Text(), nullable=False, server_default="[]", comment="JSON: last reported"
        ),
    )
    op.add_column(
        "nodes",
        sa.Column(
            "changed_at",
            UtcTime(),
            nullable=True,
            comment="Gate's clock: labels, taints, target, GPUs or driver; null: before 0011",
        ),
    )
    op.create_index(op.f("ix_nodes_changed_at"), "nodes", ["changed_at"])


def downgrade() -> None:
    op.drop_index(op.f("ix_nodes_changed_at"), table_name="nodes")
    op.drop_column("nodes", "changed_at")
    op.drop_column("nodes", "taints")
