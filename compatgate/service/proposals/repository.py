"""Store, find and list proposals and their events."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import insert, null, select, update
from sqlalchemy.orm import Session

from compatgate.documents.specs import encode, kind_of
from compatgate.errors import NotFound
from compatgate.kit import clock
from compatgate.kit.database.tables import DEFAULT_LIMIT, Page, page
from compatgate.service.audit import repository as audit
from compatgate.service.matrix.blessing import concerned_targets
from compatgate.service.matrix.repository import DocumentLookup
from compatgate.service.matrix.revisions import Edit, decode_edit
from compatgate.service.proposals.models import (
    EventAction,
    EventRow,
    Proposal,
    ProposalEvent,
    ProposalRow,
    StoredState,
)

LIFETIME = timedelta(days=7)
"""Of a proposal that the gate made of a change which it refused."""
_AUDITED: frozenset[EventAction] = frozenset({"open", "change", "approve", "retract", "close"})
"""The revision audits a merge; a comment changes nothing."""
_LISTED = [
    null().label("backtest") if column.name == "backtest" else column
    for column in Proposal.__table__.columns
]
"""Columns of a proposal in a list: a backtest is long, and no list shows it."""


def digest_edits(edits: Iterable[Edit]) -> str:
    """Return the digest of edits: equal ones of equal documents, in any order."""
    return audit.digest_rows(sorted(_plain_edits(edits), key=repr))


def _plain_edits(edits: Iterable[Edit]) -> list[list[str | None]]:
    return [
        [
            kind_of(edit.document),
            encode(edit.before) if edit.before else None,
            encode(edit.after) if edit.after else None,
        ]
        for edit in edits
    ]


def _encode_edits(edits: Iterable[Edit]) -> str:
    return msgspec.json.encode(_plain_edits(edits)).decode()


def _decode_edits(text: str) -> tuple[Edit, ...]:
    return tuple(decode_edit(*plain) for plain in msgspec.json.decode(text))


def name_targets(session: Session, edits: Iterable[Edit]) -> str:
    """Return the targets that edits concern, as the column holds them."""
    lookup = DocumentLookup(session)
    return " ".join(sorted({name for edit in edits for name in concerned_targets(lookup, edit)}))


def draft_proposal(
    session: Session,
    edits: Sequence[Edit],
    *,
    author: str,
    identity: str,
    reason: str,
    action: str,
    asking: Iterable[str] = (),
    base: int | None = None,
    automatic: bool = False,
    lifetime: timedelta | None = None,
) -> dict[str, Any]:
    """Return the columns of a new proposal.

    Args:
        session: reads the targets that the edits concern.
        edits: that it would make.
        author: who proposes.
        identity: of the author.
        reason: of the author.
        action: of the revision that it becomes.
        asking: targets whose policies ask for a proposal.
        base: revision that the author saw.
        automatic: the last approval merges it.
        lifetime: None: it stays open until somebody ends it.
    """
    at = clock.now()
    return {
        "id": make_id(at),
        "digest": digest_edits(edits),
        "state": "open",
        "made_at": at,
        "changed_at": at,
        "expires_at": at + lifetime if lifetime else None,
        "author": author,
        "identity": identity,
        "reason": reason,
        "action": action,
        "targets": name_targets(session, edits),
        "asking": " ".join(asking),
        "base": base,
        "automatic": automatic,
        "edits": _encode_edits(edits),
    }


def make_id(at: datetime) -> str:
    """Return a new id; ids sort by the time of their proposals, to a millisecond."""
    return f"pr_{int(at.timestamp() * 1000):011x}{secrets.randbits(20):05x}"


def store_proposal(session: Session, made: dict[str, Any]) -> None:
    """Store a new proposal, and audit it; the digest in the audit log says what is proposed."""
    session.execute(insert(Proposal), [made])
    add_event(
        session,
        made["id"],
        "open",
        actor=made["author"],
        identity=made["identity"],
        digest=made["digest"],
        text=made["reason"],
        targets=made["targets"],
    )


def add_event(
    session: Session,
    number: str,
    action: EventAction,
    *,
    actor: str,
    identity: str,
    digest: str,
    text: str = "",
    targets: str = "",
) -> None:
    """Store what somebody does with a proposal, and audit it."""
    at = clock.now()
    values = {"proposal": number, "at": at, "actor": actor, "identity": identity}
    session.execute(
        insert(ProposalEvent), [{**values, "action": action, "digest": digest, "text": text}]
    )
    if action in _AUDITED:
        about = {"reason": text, "targets": targets.split()} if action == "open" else {}
        audit.append(
            session,
            at=at,
            actor=actor,
            action=f"proposal.{action}",
            subject=number,
            detail={"id": number, "digest": digest, "text": text, **about},
        )


def replace_edits(
    session: Session, row: ProposalRow, edits: Sequence[Edit], *, base: int, reason: str
) -> str:
    """Store other edits of a proposal, and return their digest; its approvals fall by that."""
    digest = digest_edits(edits)
    values = {
        "digest": digest,
        "changed_at": clock.now(),
        "edits": _encode_edits(edits),
        "targets": name_targets(session, edits),
        "base": base,
        "reason": reason,
    }
    session.execute(update(Proposal).where(Proposal.id == row.id).values(values))
    return digest


def end_proposal(
    session: Session,
    number: str,
    state: StoredState,
    *,
    by: str,
    override: str | None = None,
) -> None:
    """Store that a proposal is merged or closed."""
    values = {"state": state, "decided_by": by, "decided_at": clock.now(), "override": override}
    session.execute(update(Proposal).where(Proposal.id == number).values(values))


def note_revision(session: Session, number: str, revision: int) -> None:
    """Store which revision a merged proposal became."""
    session.execute(update(Proposal).where(Proposal.id == number).values(revision=revision))


def store_backtest(session: Session, number: str, digest: str, result: dict[str, Any]) -> None:
    """Store the last backtest of a proposal, with the digest of the edits that it tested."""
    text = msgspec.json.encode(result).decode()
    values = {"backtest": text, "backtest_digest": digest}
    session.execute(update(Proposal).where(Proposal.id == number).values(values))


def find_proposal(session: Session, number: str) -> ProposalRow:
    """Return a proposal with everything that happened to it.

    Raises:
        NotFound: there is none of that id.
    """
    row = session.execute(select(Proposal.__table__).where(Proposal.id == number)).first()
    if row is None:
        hint = "compatgate matrix proposals lists them"
        what = f"proposal {number!r} does not exist"
        raise NotFound(what, field="id", value=number, hint=hint)
    return _with_events(session, [_row(row)])[0]


def find_open(session: Session, digest: str) -> list[ProposalRow]:
    """Return the open proposals of the same edits, oldest first."""
    query = select(*_LISTED).where(Proposal.digest == digest, Proposal.state == "open")
    rows = [_row(row) for row in session.execute(query.order_by(Proposal.id))]
    return _with_events(session, [row for row in rows if row.is_open])


def list_proposals(
    session: Session,
    *,
    is_open: bool | None = None,
    state: StoredState | None = None,
    author: str | None = None,
    asked: bool | None = None,
    cursor: str | None = None,
    limit: int = DEFAULT_LIMIT,
) -> Page[ProposalRow]:
    """Return proposals, the newest first.

    Args:
        session: to read from.
        is_open: may still be merged; None: all.
        state: as stored; one that has ended by itself counts as closed.
        author: who proposed.
        asked: the gate made it of a change that it refused; None: all.
        cursor: of the page.
        limit: most rows.
    """
    lasts = Proposal.expires_at.is_(None) | (Proposal.expires_at > clock.now())
    may = (Proposal.state == "open") & lasts
    query = select(*_LISTED)
    if is_open is not None:
        query = query.where(may if is_open else ~may)
    if state == "merged":
        query = query.where(Proposal.state == state)
    elif state is not None:
        query = query.where(may if state == "open" else ~may & (Proposal.state != "merged"))
    if author:
        query = query.where(Proposal.author == author)
    if asked is not None:
        query = query.where(Proposal.asking != "" if asked else Proposal.asking == "")
    found = page(session, query, Proposal.id, _row, cursor=cursor, limit=limit, descending=True)
    return Page(tuple(_with_events(session, found.items)), found.next)


def _with_events(session: Session, rows: Sequence[ProposalRow]) -> list[ProposalRow]:
    events = _load_events(session, [row.id for row in rows])
    return [msgspec.structs.replace(row, events=tuple(events.get(row.id, ()))) for row in rows]


def _load_events(session: Session, numbers: Collection[str]) -> dict[str, list[EventRow]]:
    found: dict[str, list[EventRow]] = {}
    if not numbers:
        return found
    query = select(ProposalEvent.__table__).where(ProposalEvent.proposal.in_(numbers))
    for one in session.execute(query.order_by(ProposalEvent.id)):
        event = EventRow(one.at, one.actor, one.identity, one.action, one.digest, one.text)
        found.setdefault(one.proposal, []).append(event)
    return found


def _row(row: Any) -> ProposalRow:
    values = dict(row._mapping)
    for name in ("targets", "asking"):
        values[name] = tuple(values[name].split())
    values["edits"] = _decode_edits(values["edits"])
    backtest: datetime | str | None = values["backtest"]
    values["backtest"] = msgspec.json.decode(backtest) if isinstance(backtest, str) else None
    return ProposalRow(**values)
