"""A decision's image in the row of its verdict; verdicts packed with a dictionary.

Revision 0010, after 0009. Rows that exist stay as they are, and can be read. New rows of verdicts
are packed with a dictionary of the program and have the image, new rows of batches have digests in
a shorter form. A downgrade writes all of them as 0009 does.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from zstandard import ZstdCompressor

from compatgate.service.gate.decisions.batches import decode_claims, encode_claims_as_json
from compatgate.service.gate.questions.verdict_bodies import read_body

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_COMMENTS = (
    ("decisions", "image", None, "Null: that of the verdict; empty: none"),
    (
        "decision_batches",
        "verdicts",
        "JSON: SHA-256 of the verdicts that came with it, by id",
        "Ids and SHA-256 of the verdicts that came with it",
    ),
)


def upgrade() -> None:
    op.add_column(
        "verdicts", sa.Column("image", sa.Text(), nullable=True, comment="Of its decisions")
    )
    for table, column, old, new in _COMMENTS:
        _comment(table, column, new, old)


def downgrade() -> None:
    connection = op.get_bind()
    connection.execute(
        sa.text(
            "UPDATE decisions SET image = nullif(coalesce(image,"
            " (SELECT image FROM verdicts WHERE id = verdict_id)), '')"
            " WHERE coalesce(image, '') = ''"
        )
    )
    _pack_plainly(connection)
    _write_claims_as_json(connection)
    op.drop_column("verdicts", "image")
    for table, column, old, new in _COMMENTS:
        _comment(table, column, old, new)


def _comment(table: str, column: str, text: str | None, before: str | None) -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.alter_column(
            table, column, comment=text, existing_comment=before, existing_type=sa.Text()
        )


def _pack_plainly(connection: sa.Connection) -> None:
    """Pack verdicts without a dictionary."""
    compressor = ZstdCompressor(level=3)
    read = sa.text(
        "SELECT id, packed FROM verdicts WHERE packed IS NOT NULL AND id > :last"
        " ORDER BY id LIMIT 500"
    )
    write = sa.text("UPDATE verdicts SET packed = :packed WHERE id = :id")
    last = ""
    while rows := connection.execute(read, {"last": last}).all():
        plain = {row.id: read_body("", bytes(row.packed)).encode() for row in rows}
        connection.execute(
            write, [{"id": id_, "packed": compressor.compress(it)} for id_, it in plain.items()]
        )
        last = rows[-1].id


def _write_claims_as_json(connection: sa.Connection) -> None:
    read = sa.text(
        "SELECT id, verdicts FROM decision_batches WHERE verdicts IS NOT NULL AND id > :last"
        " ORDER BY id LIMIT 500"
    )
    write = sa.text("UPDATE decision_batches SET verdicts = :verdicts WHERE id = :id")
    last = 0
    while rows := connection.execute(read, {"last": last}).all():
        connection.execute(
            write,
            [
                {"id": row.id, "verdicts": encode_claims_as_json(decode_claims(row.verdicts))}
                for row in rows
            ],
        )
        last = rows[-1].id
