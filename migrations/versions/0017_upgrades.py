"""Upgrades with their waves, nodes and events; freezes; known-good states; the health of nodes.

Revision 0017, after 0016.
"""

import sqlalchemy as sa
from alembic import op

from compatgate.kit.database.tables import BigKey, UtcTime

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "upgrades",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False, comment="By time"),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("driver", sa.Text(), nullable=False, comment="The new one"),
        sa.Column(
            "state",
            sa.Text(),
            nullable=False,
            comment="proposed, rolling, stopped, rolled back or done",
        ),
        sa.Column("soak_s", sa.Integer(), nullable=False, comment="Seconds between waves"),
        sa.Column(
            "health", sa.Boolean(), nullable=False, comment="Changed nodes must report their health"
        ),
        sa.Column(
            "accepts", sa.Text(), nullable=False, comment="JSON: entries whose stacks may break"
        ),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False, comment="Why it was stopped or rolled back"),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("identity", sa.Text(), nullable=False, comment="Of the author; others approve"),
        sa.Column("made_at", UtcTime(), nullable=False),
        sa.Column("started_at", UtcTime(), nullable=True),
        sa.Column("ended_at", UtcTime(), nullable=True),
        sa.Column("plan", sa.Text(), nullable=False, comment="JSON: what the plan said of it"),
        sa.Column(
            "before",
            sa.Text(),
            nullable=True,
            comment="JSON: stacks asked about and denied before it started",
        ),
        sa.PrimaryKeyConstraint("name", name="pk_upgrades"),
        sa.UniqueConstraint("number", name="uq_upgrades_number"),
    )
    op.create_index("ix_upgrades_target_state", "upgrades", ["target", "state"])
    op.create_table(
        "upgrade_waves",
        sa.Column("upgrade", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("pools", sa.Text(), nullable=False, comment="JSON: names"),
        sa.Column("started_at", UtcTime(), nullable=True),
        sa.Column("finished_at", UtcTime(), nullable=True),
        sa.Column("holder", sa.Text(), nullable=True, comment="Who rolls it"),
        sa.Column("held_until", UtcTime(), nullable=True, comment="End of the lease"),
        sa.PrimaryKeyConstraint("upgrade", "number", name="pk_upgrade_waves"),
        sa.ForeignKeyConstraint(["upgrade"], ["upgrades.name"], name="fk_upgrade_waves_upgrade"),
    )
    op.create_table(
        "upgrade_nodes",
        sa.Column("upgrade", sa.Text(), nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("wave", sa.Integer(), nullable=False),
        sa.Column("domain", sa.Text(), nullable=False, comment="Failure domain: kind and name"),
        sa.Column("driver", sa.Text(), nullable=True, comment="When it was proposed"),
        sa.Column("left_out", sa.Text(), nullable=True, comment="Why; null: it takes part"),
        sa.PrimaryKeyConstraint("upgrade", "cluster", "name", name="pk_upgrade_nodes"),
        sa.ForeignKeyConstraint(["upgrade"], ["upgrades.name"], name="fk_upgrade_nodes_upgrade"),
    )
    op.create_index("ix_upgrade_nodes_cluster_name", "upgrade_nodes", ["cluster", "name"])
    op.create_table(
        "upgrade_events",
        sa.Column("id", BigKey, nullable=False),
        sa.Column("upgrade", sa.Text(), nullable=False),
        sa.Column("at", UtcTime(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False, comment="Empty: the gate noticed it"),
        sa.Column("identity", sa.Text(), nullable=False),
        sa.Column(
            "action",
            sa.Text(),
            nullable=False,
            comment="propose, approve, start, finish, ...",
        ),
        sa.Column("wave", sa.Integer(), nullable=True),
        sa.Column("text", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_upgrade_events"),
        sa.ForeignKeyConstraint(["upgrade"], ["upgrades.name"], name="fk_upgrade_events_upgrade"),
    )
    op.create_index("ix_upgrade_events_upgrade", "upgrade_events", ["upgrade"])
    op.create_table(
        "freezes",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column(
            "targets", sa.Text(), nullable=False, comment="Separated by spaces; * is every target"
        ),
        sa.Column("since", UtcTime(), nullable=False),
        sa.Column("until", UtcTime(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("made_by", sa.Text(), nullable=False),
        sa.Column("made_at", UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_freezes"),
    )
    op.create_table(
        "known_good",
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False, comment="Of the matrix"),
        sa.Column("drivers", sa.Text(), nullable=False, comment="JSON: driver by pool"),
        sa.Column("upgrade", sa.Text(), nullable=False, comment="That marked it"),
        sa.Column("marked_at", UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("target", name="pk_known_good"),
    )
    op.create_table(
        "node_health",
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("since", UtcTime(), nullable=False),
        sa.Column("until", UtcTime(), nullable=False),
        sa.Column("driver", sa.Text(), nullable=False, comment="Loaded in all of it"),
        sa.Column("seconds", sa.Integer(), nullable=False, comment="Observed, without short gaps"),
        sa.PrimaryKeyConstraint("cluster", "name", "since", name="pk_node_health"),
    )
    op.create_table(
        "node_xids",
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("at", UtcTime(), nullable=False),
        sa.Column("xid", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("driver", sa.Text(), nullable=False),
        sa.Column("fatal", sa.Boolean(), nullable=False, comment="NVIDIA's table says so"),
        sa.PrimaryKeyConstraint("cluster", "name", "at", "xid", name="pk_node_xids"),
    )


def downgrade() -> None:
    for table in (
        "node_xids", "node_health", "known_good", "freezes", "upgrade_events", "upgrade_nodes",
        "upgrade_waves", "upgrades",
    ):  # fmt: skip
        op.drop_table(table)
