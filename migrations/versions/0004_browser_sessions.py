"""Browsers that are signed in.

Revision 0004, after 0003.
"""

import sqlalchemy as sa
from alembic import op

from compatgate.kit.database.tables import UtcTime

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "browser_sessions",
        sa.Column(
            "digest", sa.Text(), nullable=False, comment="SHA-256 of the cookie's value, hex"
        ),
        sa.Column("token_id", sa.Text(), nullable=False, comment="Whose rights it has"),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.Column("expires_at", UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_browser_sessions"),
    )
    op.create_index("ix_browser_sessions_token_id", "browser_sessions", ["token_id"])
    op.create_index("ix_browser_sessions_expires_at", "browser_sessions", ["expires_at"])


def downgrade() -> None:
    op.drop_table("browser_sessions")
