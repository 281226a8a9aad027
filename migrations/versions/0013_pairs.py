"""What a run is compared with, and how its pairs stand.

Revision 0013, after 0012. Earlier runs were judged alone: both columns are null.
"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    against = "JSON: asked, image, entry, reason; null: judged alone"
    op.add_column("runs", sa.Column("against", sa.Text(), nullable=True, comment=against))
    pairs = "JSON: pairs so far, and the judgement"
    op.add_column("runs", sa.Column("pairs", sa.Text(), nullable=True, comment=pairs))


def downgrade() -> None:
    op.drop_column("runs", "pairs")
    op.drop_column("runs", "against")
