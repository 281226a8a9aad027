"""Targets that exist audit missing facts; new ones enforce.

Revision 0022, after 0021. Before it, a stated value that no fact judges was passed over. Each
stored target keeps that answer for one release, as a warning: it states ``missingFacts: audit``,
in one revision of the matrix like any other.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, cast

import sqlalchemy as sa
from alembic import op
from msgspec.structs import replace
from sqlalchemy.orm import Session

from compatgate.documents.specs import TargetDoc, decode, encode
from compatgate.kit.database.tables import UtcTime
from compatgate.service.matrix.documents import revisions

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

AUTHOR = "compatgate"
REASON = "the upgrade: missing facts warn until the target says missingFacts: enforce"


def upgrade() -> None:
    connection = op.get_bind()
    rows = connection.execute(sa.text("SELECT document FROM targets ORDER BY name")).scalars()
    edits = [_audited(text) for text in rows.all()]
    if not edits:
        return
    with Session(connection) as session:
        now = datetime.now(UTC)
        revisions.make_revision(
            session, edits, author=AUTHOR, reason=REASON, action="change", at=now, write=_write
        )
        session.flush()


def _audited(text: str) -> revisions.Edit:
    before = cast(TargetDoc, decode("Target", text))
    policy = replace(before.spec.policy, missing_facts="audit")
    return revisions.Edit(before, replace(before, spec=replace(before.spec, policy=policy)))


def _write(
    session: Session, edits: Sequence[tuple[Any, TargetDoc]], *, revision: int, at: datetime
) -> None:
    """Write the documents to the table as it is at this revision; later ones add columns."""
    change = sa.text(
        "UPDATE targets SET document = :document, revision = :revision, updated_at = :at"
        " WHERE name = :name"
    ).bindparams(sa.bindparam("at", type_=UtcTime()))
    for _, after in edits:
        name, document = after.metadata.name, encode(after)
        session.execute(
            change, {"name": name, "document": document, "revision": revision, "at": at}
        )


def downgrade() -> None:
    """Leave the documents: a revision is not unmade, and before 0022 nothing reads the field."""
