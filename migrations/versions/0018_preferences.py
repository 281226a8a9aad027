"""Preferences of people and tokens: how pages look, columns and views of lists.

Revision 0018, after 0017.
"""

import sqlalchemy as sa
from alembic import op

from compatgate.kit.database.tables import UtcTime

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "preferences",
        sa.Column(
            "identity",
            sa.Text(),
            nullable=False,
            comment="person:issuer and subject, or token:name",
        ),
        sa.Column("body", sa.Text(), nullable=False, comment="JSON, without defaults"),
        sa.Column("changed_at", UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("identity", name="pk_preferences"),
    )


def downgrade() -> None:
    op.drop_table("preferences")
