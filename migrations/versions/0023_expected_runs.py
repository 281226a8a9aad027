"""What a run takes: how long, and its host alone; and why improbably good values are right.

Revision 0023, after 0022.
"""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    comment = "Why improbably good values are right"
    column = sa.Column("explained", sa.Text(), server_default="", nullable=False, comment=comment)
    op.add_column("runs", column)
    comment = "It has metrics, so it takes its host alone"
    column = sa.Column(
        "measures", sa.Boolean(), server_default=sa.false(), nullable=False, comment=comment
    )
    op.add_column("runs", column)
    comment = "Expected seconds until its end, as of the last report"
    op.add_column("runs", sa.Column("left_s", sa.Float(), nullable=True, comment=comment))


def downgrade() -> None:
    op.drop_column("runs", "left_s")
    op.drop_column("runs", "measures")
    op.drop_column("runs", "explained")
