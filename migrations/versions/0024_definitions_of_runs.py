"""The gate's definition of the suite that a run is of; audit links by what they are about.

Revision 0024, after 0023.
"""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    comment = "JSON: the gate's definition of the suite; null: queued before 0024"
    op.add_column("runs", sa.Column("definition", sa.Text(), nullable=True, comment=comment))
    op.create_index("ix_audit_subject", "audit", ["subject"])


def downgrade() -> None:
    op.drop_index("ix_audit_subject", "audit")
    op.drop_column("runs", "definition")
