"""The first schema: matrix with its history, verdicts and decisions, tokens, audit chain.

Revision 0001, after nothing.
"""

import sqlalchemy as sa
from alembic import op

from compatgate.kit.database.tables import BigKey, UtcTime

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

NUMBERED = "1, 2, 3, ... without gaps"


def upgrade() -> None:
    _history()
    _matrix()
    _gate()
    _trust()


def downgrade() -> None:
    for table in (
        "tokens",
        "audit",
        "decisions",
        "verdicts",
        "target_uses",
        "waivers",
        "entries",
        "pools",
        "targets",
        "changes",
        "revisions",
    ):
        op.drop_table(table)


def _history() -> None:
    op.create_table(
        "revisions",
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False, comment=NUMBERED),
        sa.Column(
            "made_at",
            UtcTime(),
            nullable=False,
            comment="Never before that of the previous revision",
        ),
        sa.Column("author", sa.Text(), nullable=False, comment="Name of the token or user"),
        sa.Column("reason", sa.Text(), nullable=False, comment="Why, in the author's words"),
        sa.Column("action", sa.Text(), nullable=False, comment="create, change, delete or import"),
        sa.Column("count", sa.Integer(), nullable=False, comment="Documents that it changed"),
        sa.PrimaryKeyConstraint("number", name="pk_revisions"),
    )
    op.create_index("ix_revisions_made_at", "revisions", ["made_at"])
    op.create_table(
        "changes",
        sa.Column("id", BigKey, nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False, comment="Target, Entry or Waiver"),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False, comment="create, change or delete"),
        sa.Column("before", sa.Text(), nullable=True, comment="The document before, as JSON"),
        sa.Column("after", sa.Text(), nullable=True, comment="The document since, as JSON"),
        sa.ForeignKeyConstraint(["revision"], ["revisions.number"], name="fk_changes_revision"),
        sa.PrimaryKeyConstraint("id", name="pk_changes"),
        sa.UniqueConstraint("kind", "name", "revision", name="uq_changes_kind_name_revision"),
    )
    op.create_index("ix_changes_revision", "changes", ["revision"])


def _document(table: str, *extra: sa.Column) -> None:
    op.create_table(
        table,
        *extra,
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False, comment="The document as JSON"),
        sa.Column(
            "revision", sa.Integer(), nullable=False, comment="That made this version; the ETag"
        ),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.Column("updated_at", UtcTime(), nullable=False),
        sa.ForeignKeyConstraint(["revision"], ["revisions.number"], name=f"fk_{table}_revision"),
        sa.PrimaryKeyConstraint("name", name=f"pk_{table}"),
    )


def _matrix() -> None:
    _document(
        "targets",
        sa.Column(
            "labels", sa.Text(), nullable=False, comment='" tier=prod team=ml ", for filters'
        ),
    )
    op.create_table(
        "pools",
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("gpu", sa.Text(), nullable=False, comment="As written in the document"),
        sa.Column("driver", sa.Text(), nullable=False, comment="As written in the document"),
        sa.Column("os", sa.Text(), nullable=False),
        sa.Column("cpu", sa.Text(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False, comment="Nodes"),
        sa.ForeignKeyConstraint(
            ["target"], ["targets.name"], name="fk_pools_target", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("target", "name", name="pk_pools"),
    )
    op.create_index("ix_pools_gpu", "pools", ["gpu"])
    op.create_index("ix_pools_driver", "pools", ["driver"])
    _document(
        "entries",
        sa.Column(
            "status", sa.Text(), nullable=False, comment="candidate, blessed, deprecated, revoked"
        ),
        sa.Column(
            "components", sa.Text(), nullable=False, comment='" cuda cudnn driver ", for filters'
        ),
    )
    op.create_index("ix_entries_status_name", "entries", ["status", "name"])
    _document(
        "waivers",
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("expires", sa.Text(), nullable=False, comment="ISO date, its last day in UTC"),
    )
    op.create_index("ix_waivers_expires", "waivers", ["expires"])
    op.create_table(
        "target_uses",
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False, comment="Entry or Waiver"),
        sa.Column("name", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("target", "kind", "name", name="pk_target_uses"),
    )
    op.create_index("ix_target_uses_kind_name", "target_uses", ["kind", "name"])


def _gate() -> None:
    op.create_table(
        "verdicts",
        sa.Column("id", sa.Text(), nullable=False, comment="vd_..."),
        sa.Column("body", sa.Text(), nullable=False, comment="The answer as JSON, as first given"),
        sa.PrimaryKeyConstraint("id", name="pk_verdicts"),
    )
    op.create_table(
        "decisions",
        sa.Column("id", BigKey, autoincrement=False, nullable=False, comment=NUMBERED),
        sa.Column("verdict_id", sa.Text(), nullable=False),
        sa.Column("decided_at", UtcTime(), nullable=False),
        sa.Column(
            "target", sa.Text(), nullable=True, comment="Null: the question described a pool"
        ),
        sa.Column("outcome", sa.Text(), nullable=False, comment="pass, warn, unknown or fail"),
        sa.Column("allowed", sa.Boolean(), nullable=False),
        sa.Column("matrix_revision", sa.Integer(), nullable=False),
        sa.Column("image", sa.Text(), nullable=True),
        sa.Column("asked_by", sa.Text(), nullable=False, comment="Name of the token, or anonymous"),
        sa.Column("source", sa.Text(), nullable=False, comment="rest, cli, hook:kubernetes, ..."),
        sa.Column(
            "duration_us", sa.Integer(), nullable=False, comment="Microseconds that deciding took"
        ),
        sa.ForeignKeyConstraint(["verdict_id"], ["verdicts.id"], name="fk_decisions_verdict_id"),
        sa.PrimaryKeyConstraint("id", name="pk_decisions"),
    )
    op.create_index("ix_decisions_target_id", "decisions", ["target", "id"])
    op.create_index("ix_decisions_decided_at", "decisions", ["decided_at"])
    op.create_index("ix_decisions_verdict_id", "decisions", ["verdict_id"])


def _trust() -> None:
    op.create_table(
        "tokens",
        sa.Column("id", sa.Text(), nullable=False, comment="tk_..., not secret"),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False, comment="SHA-256 of the secret, hex"),
        sa.Column("scopes", sa.Text(), nullable=False, comment="Separated by spaces"),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("expires_at", UtcTime(), nullable=True, comment="Null: never"),
        sa.Column("last_used_at", UtcTime(), nullable=True, comment="To about a minute"),
        sa.Column("revoked_at", UtcTime(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_tokens"),
        sa.UniqueConstraint("digest", name="uq_tokens_digest"),
        sa.UniqueConstraint("name", name="uq_tokens_name"),
    )
    op.create_table(
        "audit",
        sa.Column("seq", BigKey, autoincrement=False, nullable=False, comment=NUMBERED),
        sa.Column("at", sa.Text(), nullable=False, comment="ISO time, exactly as it was hashed"),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column(
            "action",
            sa.Text(),
            nullable=False,
            comment="matrix.change, token.create, decisions, ...",
        ),
        sa.Column("subject", sa.Text(), nullable=False, comment="What was acted on"),
        sa.Column("detail", sa.Text(), nullable=False, comment="JSON, exactly as it was hashed"),
        sa.Column("previous", sa.Text(), nullable=False, comment="Hash of the link before"),
        sa.Column("hash", sa.Text(), nullable=False, comment="SHA-256, hex"),
        sa.PrimaryKeyConstraint("seq", name="pk_audit"),
    )
