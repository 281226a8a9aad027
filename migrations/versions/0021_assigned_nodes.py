"""The target that somebody with the scope bless assigned a node to.

Revision 0021, after 0020.
"""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("nodes") as table:
        table.add_column(
            sa.Column(
                "assigned",
                sa.Text(),
                nullable=True,
                comment="Target, by the scope bless; empty: by labels",
            )
        )


def downgrade() -> None:
    with op.batch_alter_table("nodes") as table:
        table.drop_column("assigned")
