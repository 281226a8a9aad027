"""Incidents, and notices about them.

Revision 0016, after 0015.
"""

import sqlalchemy as sa
from alembic import op

from compatgate.kit.database.tables import BigKey, UtcTime

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "incidents",
        sa.Column("id", BigKey, nullable=False),
        sa.Column("key", sa.Text(), nullable=False, comment="Kind and digest of the cause"),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("level", sa.Text(), nullable=False, comment="fail, warn or info"),
        sa.Column("severity", sa.Integer(), nullable=False, comment="Of the level; 0 is the worst"),
        sa.Column("state", sa.Text(), nullable=False, comment="open, resolved or ended"),
        sa.Column(
            "episode", sa.Integer(), nullable=False, comment="One more each time it happens again"
        ),
        sa.Column(
            "telling", sa.Integer(), nullable=False, comment="One more each time that it is news"
        ),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False, comment="How much is concerned"),
        sa.Column("members", sa.Text(), nullable=False, comment="JSON: the objects concerned"),
        sa.Column(
            "leading", sa.Text(), nullable=False, comment="JSON: the first of them, for lists"
        ),
        sa.Column("number", sa.Integer(), nullable=False, comment="Of members"),
        sa.Column("owners", sa.Text(), nullable=False, comment="Of the members, between line ends"),
        sa.Column(
            "told", sa.Text(), nullable=False, comment="JSON: names of all members of the episode"
        ),
        sa.Column("first_seen", UtcTime(), nullable=False, comment="Of this episode"),
        sa.Column("last_seen", UtcTime(), nullable=False),
        sa.Column("ended_at", UtcTime(), nullable=True),
        sa.Column("snoozed_until", UtcTime(), nullable=True),
        sa.Column("snoozed_by", sa.Text(), nullable=True),
        sa.Column("resolved_at", UtcTime(), nullable=True),
        sa.Column("resolved_by", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True, comment="Of the snooze or resolution"),
        sa.Column(
            "settled", sa.Text(), nullable=False, comment="JSON: count by member when resolved"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_incidents")),
        sa.UniqueConstraint("key", name=op.f("uq_incidents_key")),
    )
    op.create_index(op.f("ix_incidents_state_kind"), "incidents", ["state", "kind"], unique=False)

    op.create_table(
        "notice_channels",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False, comment="webhook, email, slack or teams"),
        sa.Column(
            "place", sa.Text(), nullable=False, comment="Recipients, or scheme and host of the URL"
        ),
        sa.Column(
            "secret", sa.Text(), nullable=False, comment="JSON: URL and signing key; never shown"
        ),
        sa.Column("changed_at", UtcTime(), nullable=False),
        sa.Column("changed_by", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_notice_channels")),
    )
    op.create_table(
        "notice_deliveries",
        sa.Column("id", sa.Text(), nullable=False, comment="nd_..., by time"),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("subscription", sa.Text(), nullable=True, comment="Null: a test"),
        sa.Column("state", sa.Text(), nullable=False, comment="waiting, sent or failed"),
        sa.Column("made_at", UtcTime(), nullable=False),
        sa.Column("next_at", UtcTime(), nullable=False, comment="Of the next attempt"),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("lease_until", UtcTime(), nullable=True, comment="A process sends it now"),
        sa.Column("ended_at", UtcTime(), nullable=True),
        sa.Column("answer", sa.Text(), nullable=True, comment="Of the receiver, or the error"),
        sa.Column(
            "message", sa.Text(), nullable=False, comment="JSON: what it says, without secrets"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_notice_deliveries")),
    )
    op.create_index(
        op.f("ix_notice_deliveries_channel_id"),
        "notice_deliveries",
        ["channel", "id"],
        unique=False,
    )
    op.create_index(
        op.f("ix_notice_deliveries_state_next_at"),
        "notice_deliveries",
        ["state", "next_at"],
        unique=False,
    )

    op.create_table(
        "notice_marks",
        sa.Column("name", sa.Text(), nullable=False, comment="survey or releases"),
        sa.Column("at", UtcTime(), nullable=True, comment="When it was written"),
        sa.Column("value", sa.Text(), nullable=False, comment="JSON"),
        sa.Column("lease_until", UtcTime(), nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_notice_marks")),
    )
    op.create_table(
        "notice_subscriptions",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column(
            "filter",
            sa.Text(),
            nullable=False,
            comment="JSON: kinds, owners, labels, targets, level",
        ),
        sa.Column("urgency", sa.Text(), nullable=False, comment="page or ticket"),
        sa.Column(
            "digest_s", sa.Integer(), nullable=False, comment="Least seconds between two messages"
        ),
        sa.Column("last_at", UtcTime(), nullable=True, comment="Of the last message"),
        sa.Column("changed_at", UtcTime(), nullable=False),
        sa.Column("changed_by", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["channel"], ["notice_channels.name"], name=op.f("fk_notice_subscriptions_channel")
        ),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_notice_subscriptions")),
    )
    op.create_table(
        "notice_items",
        sa.Column("id", BigKey, nullable=False),
        sa.Column("subscription", sa.Text(), nullable=False),
        sa.Column("incident", BigKey, nullable=False),
        sa.Column("episode", sa.Integer(), nullable=False),
        sa.Column("telling", sa.Integer(), nullable=False),
        sa.Column(
            "members", sa.Text(), nullable=False, comment="JSON: names of the members that are news"
        ),
        sa.Column("made_at", UtcTime(), nullable=False),
        sa.Column("delivery", sa.Text(), nullable=True, comment="Null: it waits"),
        sa.ForeignKeyConstraint(
            ["delivery"],
            ["notice_deliveries.id"],
            name=op.f("fk_notice_items_delivery"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["incident"],
            ["incidents.id"],
            name=op.f("fk_notice_items_incident"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["subscription"],
            ["notice_subscriptions.name"],
            name=op.f("fk_notice_items_subscription"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_notice_items")),
    )
    op.create_index(op.f("ix_notice_items_delivery"), "notice_items", ["delivery"], unique=False)
    op.create_index(
        op.f("ix_notice_items_subscription_incident_episode_telling"),
        "notice_items",
        ["subscription", "incident", "episode", "telling"],
        unique=True,
    )


def downgrade() -> None:
    op.drop_index(
        op.f("ix_notice_items_subscription_incident_episode_telling"), table_name="notice_items"
    )
    op.drop_index(op.f("ix_notice_items_delivery"), table_name="notice_items")

    op.drop_table("notice_items")
    op.drop_table("notice_subscriptions")
    op.drop_table("notice_marks")
    op.drop_index(op.f("ix_notice_deliveries_state_next_at"), table_name="notice_deliveries")
    op.drop_index(op.f("ix_notice_deliveries_channel_id"), table_name="notice_deliveries")

    op.drop_table("notice_deliveries")
    op.drop_table("notice_channels")
    op.drop_index(op.f("ix_incidents_state_kind"), table_name="incidents")

    op.drop_table("incidents")
