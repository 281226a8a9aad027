"""The suites that the worker of a staging host has.

Revision 0020, after 0019.
"""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    comment = "JSON: names of suites that its worker has"
    column = sa.Column("suites", sa.Text(), server_default="[]", nullable=False, comment=comment)
    with op.batch_alter_table("hosts") as table:
        table.add_column(column)


def downgrade() -> None:
    with op.batch_alter_table("hosts") as table:
        table.drop_column("suites")
