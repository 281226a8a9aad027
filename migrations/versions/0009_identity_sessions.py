"""Sessions of people who sign in at an OpenID Connect issuer.

Revision 0009, after 0008. A downgrade signs these people out.
"""

import sqlalchemy as sa
from alembic import op

from compatgate.kit.database.tables import UtcTime

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "identity_sessions",
        sa.Column("id", sa.Text(), nullable=False, comment="is_..., not secret"),
        sa.Column("digest", sa.Text(), nullable=False, comment="SHA-256 of the secret, hex"),
        sa.Column(
            "proof",
            sa.Text(),
            nullable=False,
            comment="SHA-256 of the ID token that opened it, hex: used once",
        ),
        sa.Column("kind", sa.Text(), nullable=False, comment="browser or command-line"),
        sa.Column("issuer", sa.Text(), nullable=False),
        sa.Column(
            "subject", sa.Text(), nullable=False, comment="The issuer's stable id of the person"
        ),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("email", sa.Text(), nullable=False),
        sa.Column(
            "groups", sa.Text(), nullable=False, comment="JSON, those that the settings named"
        ),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.Column("last_used_at", UtcTime(), nullable=False, comment="To about a minute"),
        sa.Column("expires_at", UtcTime(), nullable=False, comment="Its absolute end"),
        sa.Column("ended_at", UtcTime(), nullable=True, comment="Signed out, or ended"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_identity_sessions")),
        sa.UniqueConstraint("digest", name=op.f("uq_identity_sessions_digest")),
        sa.UniqueConstraint("proof", name=op.f("uq_identity_sessions_proof")),
    )
    op.create_index(op.f("ix_identity_sessions_expires_at"), "identity_sessions", ["expires_at"])


def downgrade() -> None:
    op.drop_index(op.f("ix_identity_sessions_expires_at"), table_name="identity_sessions")
    op.drop_table("identity_sessions")
