"""The reason that a person gives for improbably good values of a run.

Revision 0022, after 0021.
"""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    comment = "Why improbably good values are right"
    column = sa.Column("explained", sa.Text(), server_default="", nullable=False, comment=comment)
    op.add_column("runs", column)


def downgrade() -> None:
    op.drop_column("runs", "explained")
