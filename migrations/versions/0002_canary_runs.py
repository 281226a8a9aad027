"""Canary runs: hosts, the queue, steps and output, evidence, warnings, baselines.

Revision 0002, after 0001.
"""

import sqlalchemy as sa
from alembic import op

from compatgate.kit.database.tables import BigKey, UtcTime

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _hosts()
    _runs()
    _evidence()


def downgrade() -> None:
    for table in (
        "baselines",
        "entry_warnings",
        "evidence",
        "run_output",
        "run_steps",
        "slots",
        "runs",
        "hosts",
    ):
        op.drop_table(table)


def _hosts() -> None:
    op.create_table(
        "hosts",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("worker", sa.Text(), nullable=False, comment="That declared it last"),
        sa.Column("executor", sa.Text(), nullable=False, comment="docker, process, ..."),
        sa.Column("gpu", sa.Text(), nullable=True, comment="SKU, resolved; null: no GPUs"),
        sa.Column("driver", sa.Text(), nullable=True, comment="Null: whatever a run measures"),
        sa.Column(
            "slots", sa.Integer(), nullable=False, comment="GPUs; without GPUs, runs at once"
        ),
        sa.Column(
            "health", sa.Text(), nullable=False, comment="Where GPU health is read: local or none"
        ),
        sa.Column("quiet", sa.Text(), nullable=False, comment="JSON: when it takes no new run"),
        sa.Column("registered_at", UtcTime(), nullable=False),
        sa.Column("seen_at", UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_hosts"),
    )


def _runs() -> None:
    op.create_table(
        "runs",
        sa.Column("seq", BigKey, nullable=False, comment="In order of submission"),
        sa.Column("id", sa.Text(), nullable=False, comment="run_..."),
        sa.Column("suite", sa.Text(), nullable=False),
        sa.Column(
            "state", sa.Text(), nullable=False, comment="queued to judging, then the outcome"
        ),
        sa.Column("stack", sa.Text(), nullable=False, comment="JSON, as in a question to the gate"),
        sa.Column("target", sa.Text(), nullable=True),
        sa.Column("pool", sa.Text(), nullable=True),
        sa.Column("entry", sa.Text(), nullable=True, comment="Of the matrix, that it is about"),
        sa.Column("image", sa.Text(), nullable=True),
        sa.Column(
            "gpu", sa.Text(), nullable=True, comment="SKU; null: a host without GPUs will do"
        ),
        sa.Column("driver", sa.Text(), nullable=True),
        sa.Column("driver_key", sa.Text(), nullable=True, comment="The driver, for comparing"),
        sa.Column("gpus", sa.Integer(), nullable=False, comment="Slots that it takes"),
        sa.Column("host", sa.Text(), nullable=True, comment="That it must run on; null: any"),
        sa.Column("priority", sa.Integer(), nullable=False, comment="Higher goes first"),
        sa.Column("purpose", sa.Text(), nullable=False, comment="request or verification"),
        sa.Column("attempts", sa.Integer(), nullable=False, comment="Begun; the fencing token"),
        sa.Column("max_attempts", sa.Integer(), nullable=False),
        sa.Column("doing", sa.Text(), nullable=False),
        sa.Column("progress", sa.Float(), nullable=True, comment="0 to 1"),
        sa.Column("reason", sa.Text(), nullable=False, comment="Why it stands as it does"),
        sa.Column("asked_by", sa.Text(), nullable=False),
        sa.Column("worker", sa.Text(), nullable=True, comment="That has it, or had it last"),
        sa.Column("on_host", sa.Text(), nullable=True, comment="Where it runs, or ran last"),
        sa.Column("not_before", UtcTime(), nullable=True, comment="Pause before a retry"),
        sa.Column("lease_until", UtcTime(), nullable=True),
        sa.Column("cancel_by", sa.Text(), nullable=True, comment="Who asked for its end"),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.Column("started_at", UtcTime(), nullable=True, comment="Of the first attempt"),
        sa.Column("finished_at", UtcTime(), nullable=True),
        sa.PrimaryKeyConstraint("seq", name="pk_runs"),
        sa.UniqueConstraint("id", name="uq_runs_id"),
    )
    op.create_index("ix_runs_entry_seq", "runs", ["entry", "seq"])
    op.create_index("ix_runs_state_lease_until", "runs", ["state", "lease_until"])
    op.create_index("ix_runs_state_priority_seq", "runs", ["state", "priority", "seq"])
    op.create_index("ix_runs_state_seq", "runs", ["state", "seq"])
    op.create_index("ix_runs_suite_seq", "runs", ["suite", "seq"])
    op.create_index("ix_runs_target_seq", "runs", ["target", "seq"])
    op.create_table(
        "slots",
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("slot", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("run", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run"], ["runs.id"], name="fk_slots_run"),
        sa.PrimaryKeyConstraint("host", "slot", name="pk_slots"),
    )
    op.create_index("ix_slots_run", "slots", ["run"])
    op.create_table(
        "run_steps",
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False, comment="In the order of recording"),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False, comment="The step's result as JSON"),
        sa.ForeignKeyConstraint(["run"], ["runs.id"], name="fk_run_steps_run"),
        sa.PrimaryKeyConstraint("run", "attempt", "name", name="pk_run_steps"),
    )
    op.create_table(
        "run_output",
        sa.Column("id", BigKey, nullable=False),
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("step", sa.Text(), nullable=False),
        sa.Column("at", UtcTime(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False, comment="As it came, cut anywhere"),
        sa.ForeignKeyConstraint(["run"], ["runs.id"], name="fk_run_output_run"),
        sa.PrimaryKeyConstraint("id", name="pk_run_output"),
    )
    op.create_index("ix_run_output_run_id", "run_output", ["run", "id"])


def _evidence() -> None:
    op.create_table(
        "evidence",
        sa.Column(
            "seq", BigKey, autoincrement=False, nullable=False, comment="1, 2, 3, ... without gaps"
        ),
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("suite", sa.Text(), nullable=False),
        sa.Column("sku", sa.Text(), nullable=False),
        sa.Column("driver", sa.Text(), nullable=False, comment="Measured"),
        sa.Column(
            "components", sa.Text(), nullable=False, comment="JSON: component to version measured"
        ),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("finished", sa.BigInteger(), nullable=False, comment="Seconds since the epoch"),
        sa.Column("development", sa.Boolean(), nullable=False, comment="Ran outside a container"),
        sa.Column(
            "known_at", UtcTime(), nullable=False, comment="Never before that of the previous row"
        ),
        sa.ForeignKeyConstraint(["run"], ["runs.id"], name="fk_evidence_run"),
        sa.PrimaryKeyConstraint("seq", name="pk_evidence"),
        sa.UniqueConstraint("run", name="uq_evidence_run"),
    )
    op.create_index("ix_evidence_known_at", "evidence", ["known_at"])
    op.create_index("ix_evidence_suite_sku_seq", "evidence", ["suite", "sku", "seq"])
    op.create_table(
        "entry_warnings",
        sa.Column("id", BigKey, nullable=False),
        sa.Column("entry", sa.Text(), nullable=False),
        sa.Column("run", sa.Text(), nullable=False, comment="That opened it"),
        sa.Column("suite", sa.Text(), nullable=False),
        sa.Column("sku", sa.Text(), nullable=False),
        sa.Column("driver", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("opened_at", UtcTime(), nullable=False),
        sa.Column("closed_at", UtcTime(), nullable=True, comment="Null: it is open"),
        sa.Column("closed_by", sa.Text(), nullable=True, comment="Id of the run that passed"),
        sa.ForeignKeyConstraint(["run"], ["runs.id"], name="fk_entry_warnings_run"),
        sa.PrimaryKeyConstraint("id", name="pk_entry_warnings"),
    )
    op.create_index("ix_entry_warnings_closed_at", "entry_warnings", ["closed_at"])
    op.create_index("ix_entry_warnings_entry_closed_at", "entry_warnings", ["entry", "closed_at"])
    op.create_table(
        "baselines",
        sa.Column("id", BigKey, nullable=False),
        sa.Column("workload", sa.Text(), nullable=False),
        sa.Column("sku", sa.Text(), nullable=False),
        sa.Column("family", sa.Text(), nullable=False, comment="Of the stack"),
        sa.Column("metric", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False, comment="1, 2, ... for each metric"),
        sa.Column(
            "state", sa.Text(), nullable=False, comment="proposed, approved, replaced or refused"
        ),
        sa.Column(
            "body", sa.Text(), nullable=False, comment="The distribution, as the judge reads it"
        ),
        sa.Column("proposed_at", UtcTime(), nullable=False),
        sa.Column("proposed_by", sa.Text(), nullable=False),
        sa.Column("decided_at", UtcTime(), nullable=True),
        sa.Column("decided_by", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_baselines"),
        sa.UniqueConstraint(
            "workload",
            "sku",
            "family",
            "metric",
            "version",
            name="uq_baselines_workload_sku_family_metric_version",
        ),
    )
    op.create_index("ix_baselines_state_id", "baselines", ["state", "id"])
