"""The person whose a token is: all tokens of one approve once.

Revision 0025, after 0024.
"""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    comment = "The person whose it is; null: the token's name"
    op.add_column("tokens", sa.Column("person", sa.Text(), nullable=True, comment=comment))


def downgrade() -> None:
    op.drop_column("tokens", "person")
