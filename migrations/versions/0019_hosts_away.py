"""Hosts that do not answer: since when, and why.

Revision 0019, after 0018.
"""

import sqlalchemy as sa
from alembic import op

from compatgate.kit.database.tables import UtcTime

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "hosts", sa.Column("away_since", UtcTime(), nullable=True, comment="Null: it answers")
    )
    op.add_column(
        "hosts", sa.Column("away_why", sa.Text(), nullable=True, comment="Why, and what to do")
    )


def downgrade() -> None:
    op.drop_column("hosts", "away_why")
    op.drop_column("hosts", "away_since")
