"""Targets that exist audit missing facts; new ones enforce.

Revision 0022, after 0021. Nothing is written, so that older replicas go on: a stored target that
lacks the field audits (`compatgate.documents.specs.decode`), until it is changed.
"""

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Leave the documents."""


def downgrade() -> None:
    """Leave the documents."""
