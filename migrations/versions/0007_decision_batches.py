"""Batches of decisions, one chain for each writer; verdicts compressed; tokens in the audit chain.

Revision 0007, after 0006. Before it, every batch of decisions was a link of the audit chain, and
writers of a database took turns. The links stay, and so do the decisions that they cover.
Downgrading numbers the newer decisions anew, without gaps, and adds a link for each batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.orm import Session

from compatgate.core.performance import sha256
from compatgate.kit import clock
from compatgate.kit.clock import iso
from compatgate.kit.database.tables import BigKey, UtcTime
from compatgate.service.access.token_table import digest_token
from compatgate.service.audit import chain as audit
from compatgate.service.gate.decisions.batches import NUMBERS, decode_claims, encode_values
from compatgate.service.gate.questions.verdict_bodies import read_body

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

WITHOUT_GAPS = "1, 2, 3, ... without gaps"
NUMBERED = "1000 x its batch, plus its place in it"
_VALUES = (
    "verdict_id",
    "decided_at",
    "target",
    "outcome",
    "allowed",
    "matrix_revision",
    "image",
    "asked_by",
    "source",
    "duration_us",
)


def upgrade() -> None:
    op.create_table(
        "decision_batches",
        sa.Column(
            "id",
            BigKey,
            nullable=False,
            comment="Decisions have 1000 x this, and the numbers after",
        ),
        sa.Column("writer", sa.Text(), nullable=False, comment="Random id of a process"),
        sa.Column("sequence", BigKey, nullable=False, comment="1, 2, 3, ... of the writer"),
        sa.Column("count", sa.Integer(), nullable=False, comment="Decisions"),
        sa.Column("decided_at", UtcTime(), nullable=False, comment="Of the last decision"),
        sa.Column("late", sa.Boolean(), nullable=False, comment="Delivered from a spool"),
        sa.Column(
            "verdicts",
            sa.Text(),
            nullable=True,
            comment="JSON: SHA-256 of the verdicts that came with it, by id",
        ),
        sa.Column(
            "hash", sa.LargeBinary(), nullable=False, comment="SHA-256 of the writer's chain"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_decision_batches"),
        sa.UniqueConstraint("writer", "sequence", name="uq_decision_batches_writer_sequence"),
    )
    op.create_index(
        "ix_decision_batches_late",
        "decision_batches",
        ["id", "decided_at"],
        sqlite_where=sa.text("late"),
        postgresql_where=sa.text("late"),
    )
    op.create_table(
        "decision_writers",
        sa.Column("writer", sa.Text(), nullable=False),
        sa.Column("sequence", BigKey, nullable=False, comment="Of the batch"),
        sa.Column("hash", sa.Text(), nullable=False, comment="Of the batch, hex"),
        sa.Column("link", BigKey, nullable=False, comment="Number of the audit link"),
        sa.PrimaryKeyConstraint("writer", name="pk_decision_writers"),
    )
    op.add_column(
        "verdicts",
        sa.Column(
            "packed", sa.LargeBinary(), nullable=True, comment="The answer as JSON, Zstandard"
        ),
    )
    op.add_column(
        "verdicts",
        sa.Column(
            "batch", BigKey, nullable=True, comment="That brought it; null: an audit link did"
        ),
    )
    connection = op.get_bind()
    if connection.dialect.name == "postgresql":
        _comment(NUMBERED, WITHOUT_GAPS)
        last = sa.text("SELECT coalesce(max(id), 0) / :numbers + 1 FROM decisions")
        following = connection.execute(last, {"numbers": NUMBERS}).scalar()
        connection.execute(
            sa.text("SELECT setval('decision_batches_id_seq', :next, false)"), {"next": following}
        )
    _adopt_tokens(connection)


def _comment(text: str, before: str) -> None:
    op.alter_column(
        "decisions", "id", comment=text, existing_comment=before, existing_type=sa.BigInteger()
    )


def _adopt_tokens(connection: sa.Connection) -> None:
    """Put the digests of the tokens that exist into the audit chain."""
    rows = connection.execute(sa.text("SELECT * FROM tokens ORDER BY id")).mappings().all()
    if not rows:
        return
    digests = {row["id"]: digest_token(dict(row)) for row in rows}
    with Session(connection) as session:
        audit.append(
            session,
            at=clock.now(),
            actor="compatgate",
            action="token.adopt",
            subject=f"{len(rows)} tokens",
            detail={"tokens": digests},
        )
        session.flush()


def downgrade() -> None:
    connection = op.get_bind()
    _unpack_bodies(connection)
    _number_anew(connection)
    op.drop_column("verdicts", "batch")
    op.drop_column("verdicts", "packed")
    op.drop_table("decision_writers")
    op.drop_table("decision_batches")
    if connection.dialect.name == "postgresql":
        _comment(WITHOUT_GAPS, NUMBERED)


def _unpack_bodies(connection: sa.Connection) -> None:
    while rows := connection.execute(
        sa.text("SELECT id, packed FROM verdicts WHERE packed IS NOT NULL LIMIT 500")
    ).all():
        plain = [{"id": row.id, "body": read_body("", bytes(row.packed))} for row in rows]
        connection.execute(
            sa.text("UPDATE verdicts SET body = :body, packed = NULL WHERE id = :id"), plain
        )


def _number_anew(connection: sa.Connection) -> None:
    """Number the decisions of batches without gaps, and link each batch as 0006 does."""
    where = {"numbers": NUMBERS}
    first_batch = connection.execute(sa.text("SELECT min(id) FROM decision_batches")).scalar()
    if first_batch is None:
        return
    old = sa.text("SELECT coalesce(max(id), 0) FROM decisions WHERE id < :first * :numbers")
    number = connection.execute(old, {"first": first_batch, **where}).scalar() or 0
    with Session(connection) as session:
        for batch in _batches(connection):
            number = _link(session, batch, number)
        session.flush()


def _batches(connection: sa.Connection) -> Iterator[Any]:
    last = -1
    query = sa.text("SELECT * FROM decision_batches WHERE id > :last ORDER BY id LIMIT 500")
    while rows := connection.execute(query, {"last": last}).all():
        yield from rows
        last = rows[-1].id


def _link(session: Session, batch: Any, number: int) -> int:
    """Number a batch's decisions after a number, link them, and return the last number."""
    decisions = sa.table("decisions", sa.column("id"), *_columns())
    first = batch.id * NUMBERS
    query = sa.select(decisions).where(decisions.c.id.between(first, first + NUMBERS - 1))
    rows = session.execute(query.order_by(decisions.c.id)).all()
    lines = []
    for place, row in enumerate(rows, number + 1):
        move = sa.update(decisions).where(decisions.c.id == row.id).values(id=place)
        session.execute(move)
        _, verdict_id, decided_at, *others = row
        lines.append([place, verdict_id, iso(decided_at), *others])
    detail: dict[str, Any] = {
        "first": number + 1,
        "count": len(lines),
        "sha256": sha256(encode_values(lines)),
    }
    claims = decode_claims(batch.verdicts)
    brought = session.execute(
        sa.text("SELECT id FROM verdicts WHERE batch = :batch"), {"batch": batch.id}
    ).scalars()
    if made := {key: claims[key] for key in brought if key in claims}:
        detail["verdicts"] = made
    last = number + len(lines)
    audit.append(
        session,
        at=clock.now(),
        actor="gate",
        action="decisions",
        subject=f"decisions {number + 1} to {last}",
        detail=detail,
    )
    return last


def _columns() -> list[sa.ColumnClause[Any]]:
    types = {"decided_at": UtcTime(), "allowed": sa.Boolean()}
    return [sa.column(name, types.get(name)) for name in _VALUES]
