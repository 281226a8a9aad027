"""How many nodes a run needs at once.

Revision 0005, after 0004.
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "runs",
        sa.Column(
            "nodes",
            sa.Integer(),
            nullable=False,
            server_default="1",
            comment="At once; more than one only on a cluster",
        ),
    )


def downgrade() -> None:
    op.drop_column("runs", "nodes")
