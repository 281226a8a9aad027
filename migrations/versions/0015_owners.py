"""Owners of targets and entries, and labels of entries, in columns that lists filter by.

Revision 0015, after 0014. The documents hold both since 0001; the columns are copied from them.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

from compatgate.documents.specs import decode

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

_ROWS = 1000
"""Rows in one statement."""


def upgrade() -> None:
    op.add_column("targets", _owner())
    op.add_column(
        "entries",
        sa.Column(
            "labels",
            sa.Text(),
            nullable=False,
            server_default="",
            comment='" tier=prod team=ml ", for filters',
        ),
    )
    op.add_column("entries", _owner())
    for kind, table in (("Target", "targets"), ("Entry", "entries")):
        _fill(kind, table)


def _owner() -> "sa.Column[str]":
    return sa.Column(
        "owner", sa.Text(), nullable=False, server_default="", comment="Empty: not stated"
    )


def _fill(kind: str, table: str) -> None:
    connection = op.get_bind()
    rows = connection.execute(sa.text(f"SELECT name, document FROM {table}")).all()  # noqa: S608
    found = [_columns(kind, name, text) for name, text in rows]
    filled = [row for row in found if row["owner"] or row["labels"].strip()]
    change = sa.text(
        f"UPDATE {table} SET owner = :owner, labels = :labels WHERE name = :name"  # noqa: S608
    )
    for start in range(0, len(filled), _ROWS):
        connection.execute(change, filled[start : start + _ROWS])


def _columns(kind: str, name: str, text: str) -> dict[str, Any]:
    about = decode(kind, text).metadata
    labels = f" {' '.join(sorted(f'{key}={value}' for key, value in about.labels.items()))} "
    return {"name": name, "owner": getattr(about, "owner", None) or "", "labels": labels}


def downgrade() -> None:
    with op.batch_alter_table("entries") as entries:
        entries.drop_column("owner")
        entries.drop_column("labels")
    with op.batch_alter_table("targets") as targets:
        targets.drop_column("owner")
