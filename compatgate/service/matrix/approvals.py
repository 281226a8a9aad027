"""Ask a second person for changes of the matrix, where the policy of a target says so.

The first person's request is refused and recorded: the edits, with the digest of what they change.
It becomes a revision when another person approves the record, or sends the same change. A record
ends after `LIFETIME`, or when the documents that it would change are no longer the ones it saw.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct
from sqlalchemy import Integer, Text, insert, select, update
from sqlalchemy.orm import Mapped, Session, mapped_column

from compatgate.core.matrix import ANY_TARGET
from compatgate.documents.specs import Change, TargetDoc, decode, encode, kind_of, to_body
from compatgate.documents.weakening import loosens
from compatgate.errors import Conflict, NotFound
from compatgate.kit import clock
from compatgate.kit.database.tables import DEFAULT_LIMIT, Base, Page, UtcTime, page, to_plain
from compatgate.service.audit import repository as audit
from compatgate.service.matrix import repository as documents
from compatgate.service.matrix.permission import targets_of
from compatgate.service.matrix.revisions import Edit
from compatgate.service.tokens.principal import AccessRefused, Principal

LIFETIME = timedelta(days=7)
ApprovalState = Literal["waiting", "approved", "refused"]


class Approval(Base):
    """A change that waits for a second person, or did."""

    __tablename__ = "approvals"

    id: Mapped[str] = mapped_column(Text, primary_key=True, comment="ap_...")
    digest: Mapped[str] = mapped_column(Text, index=True, comment="SHA-256 of the edits, hex")
    state: Mapped[str] = mapped_column(Text, comment="waiting, approved or refused")
    made_at: Mapped[datetime] = mapped_column(UtcTime)
    expires_at: Mapped[datetime] = mapped_column(UtcTime)
    author: Mapped[str] = mapped_column(Text, comment="Name of the first person")
    identity: Mapped[str] = mapped_column(Text, comment="Of the first person; another one approves")
    reason: Mapped[str] = mapped_column(Text, comment="Why, in the author's words")
    action: Mapped[str] = mapped_column(Text, comment="create, change, delete or import")
    targets: Mapped[str] = mapped_column(Text, comment="Whose policies ask, separated by spaces")
    edits: Mapped[str] = mapped_column(Text, comment="JSON: documents before and after")
    decided_by: Mapped[str | None] = mapped_column(Text)
    decided_at: Mapped[datetime | None] = mapped_column(UtcTime)
    revision: Mapped[int | None] = mapped_column(Integer, comment="That it became")


class ApprovalRow(Struct, frozen=True):
    """A change that waits for a second person, or did.

    Attributes:
        targets: whose policies ask for two people.
    """

    id: str
    digest: str
    state: ApprovalState
    made_at: datetime
    expires_at: datetime
    author: str
    identity: str
    reason: str
    action: str
    targets: tuple[str, ...]
    edits: tuple[Edit, ...]
    decided_by: str | None
    decided_at: datetime | None
    revision: int | None

    @property
    def is_open(self) -> bool:
        """Return whether somebody may still approve it."""
        return self.state == "waiting" and not clock.is_past(self.expires_at)

    def to_json(self) -> dict[str, Any]:
        """Return plain data, with the changes that it would make."""
        body = to_plain(self)
        for name in ("edits", "identity"):
            del body[name]
        changes = [_to_change(edit).to_json() for edit in self.edits]
        return {**body, "targets": list(self.targets), "open": self.is_open, "changes": changes}


class ApprovalNeeded(Conflict):
    """A policy asks for two people, and only one has sent this change.

    Args:
        made: the record to store; None: the caller's record waits already.
        problem: as of every error; so is ``hint``.
    """

    slug = "approval-needed"

    def __init__(self, problem: str, *, made: dict[str, Any] | None, value: str, hint: str) -> None:
        super().__init__(problem, field="approval", value=value, hint=hint)
        self.made = made


class Consent(Struct, frozen=True):
    """Who agreed to a change, for the audit log; without an approval it is the author alone."""

    approval: str | None = None
    people: tuple[str, ...] = ()

    def to_detail(self) -> dict[str, Any]:
        """Return the members of the revision's audit record."""
        return {"approval": self.approval, "people": list(self.people)} if self.approval else {}

    def note(self, session: Session, revision: int) -> None:
        """Store which revision an approved record became."""
        if self.approval:
            change = update(Approval).where(Approval.id == self.approval)
            session.execute(change.values(revision=revision))


def require_consent(
    session: Session, edits: Sequence[Edit], *, author: str, reason: str, action: str, identity: str
) -> Consent:
    """Return the consent to edits; where two people are asked for, another one has sent them.

    Args:
        session: the writing one in which the edits are made.
        edits: of one revision.
        author: name of the caller.
        reason: of the caller.
        action: of the revision.
        identity: of the caller.

    Raises:
        ApprovalNeeded: nobody else has; the caller of this function stores its record.
    """
    asking = list_asking(session, edits)
    if not asking:
        return Consent()
    digest, at = digest_edits(edits), clock.now()
    waiting = _find_waiting(session, digest, at)
    other = next((one for one in waiting if one.identity != identity), None)
    if other is not None:
        decide(session, other, "approved", by=author)
        return Consent(other.id, (other.author, author))
    mine = next((one for one in waiting if one.identity == identity), None)
    number = mine.id if mine else f"ap_{secrets.token_hex(8)}"
    made = None
    if mine is None:
        made = {
            "id": number,
            "digest": digest,
            "state": "waiting",
            "made_at": at,
            "expires_at": at + LIFETIME,
            "author": author,
            "identity": identity,
            "reason": reason,
            "action": action,
            "targets": " ".join(asking),
            "edits": _encode_edits(edits),
        }
    raise ApprovalNeeded(
        f"the policy of {', '.join(asking[:5])} asks for two people: {number} waits for the other",
        made=made,
        value=number,
        hint=f"somebody else approves it within {LIFETIME.days} days: compatgate matrix approve"
        f" {number}, or sends the same change",
    )


def list_asking(session: Session, edits: Sequence[Edit]) -> list[str]:
    """Return the targets whose stored policies ask for two people for these edits."""
    concerned = {
        name for edit in edits if loosens(edit.before, edit.after) for name in targets_of(edit)
    }
    if not concerned:
        return []
    if ANY_TARGET in concerned:
        stored = [document for document, _ in documents.load_documents(session, "Target")]
    else:
        keys: list[Any] = [("Target", name) for name in concerned]
        stored = list(documents.find_documents(session, keys).values())
    asking = (one for one in stored if isinstance(one, TargetDoc) and _asks_for_two(one))
    return sorted(one.metadata.name for one in asking)


def _asks_for_two(target: TargetDoc) -> bool:
    approvals = target.spec.policy.approvals
    return approvals is not UNSET and approvals > 1


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
    return tuple(
        Edit(*(decode(kind, side) if side else None for side in (before, after)))
        for kind, before, after in msgspec.json.decode(text)
    )


def _to_change(edit: Edit) -> Change:
    before, after = (to_body(side) if side else None for side in (edit.before, edit.after))
    document = edit.document
    return Change(kind_of(document), document.metadata.name, edit.action, before, after)


def open_approval(session: Session, made: dict[str, Any]) -> None:
    """Store a record, and audit it; the digest in the audit log says what was asked for."""
    session.execute(insert(Approval), [made])
    detail = {name: made[name] for name in ("id", "digest", "reason", "targets")}
    audit.append(
        session,
        at=made["made_at"],
        actor=made["author"],
        action="approval.request",
        subject=made["id"],
        detail=detail,
    )


def decide(
    session: Session,
    approval: ApprovalRow,
    state: ApprovalState,
    *,
    by: str,
) -> None:
    """Store the decision about a record; the revision that follows audits an approval."""
    at = clock.now()
    values = {"state": state, "decided_by": by, "decided_at": at}
    session.execute(update(Approval).where(Approval.id == approval.id).values(values))
    if state == "refused":
        audit.append(
            session,
            at=at,
            actor=by,
            action="approval.refuse",
            subject=approval.id,
            detail={"digest": approval.digest},
        )


def find_approval(session: Session, number: str) -> ApprovalRow:
    """Return a record.

    Raises:
        NotFound: there is none of that id.
    """
    row = session.execute(select(Approval.__table__).where(Approval.id == number)).first()
    if row is None:
        raise NotFound(f"there is no approval {number!r}", field="id", value=number)
    return _row(row)


def list_approvals(
    session: Session,
    *,
    waiting: bool | None = None,
    cursor: str | None = None,
    limit: int = DEFAULT_LIMIT,
) -> Page[ApprovalRow]:
    """Return records, the newest first; ``waiting`` picks those that may still be approved."""
    query = select(Approval.__table__)
    may = (Approval.state == "waiting") & (Approval.expires_at > clock.now())
    if waiting is not None:
        query = query.where(may if waiting else ~may)
    key = (Approval.made_at, Approval.id)
    return page(session, query, key, _row, cursor=cursor, limit=limit, descending=True)


def require_waiting(approval: ApprovalRow) -> None:
    """Require that a record may still be decided.

    Raises:
        Conflict: it was decided already, or has ended.
    """
    if not approval.is_open:
        state = "has ended" if approval.state == "waiting" else f"was {approval.state}"
        what, hint = f"the approval {approval.id} {state}", "send the change again"
        raise Conflict(what, field="id", value=approval.id, hint=hint)


def require_other(approval: ApprovalRow, principal: Principal) -> None:
    """Require that a record waits, and that somebody else approves it.

    Raises:
        Conflict: it was decided already, or has ended.
        AccessRefused: the author approves it.
    """
    require_waiting(approval)
    if approval.identity == principal.identity:
        raise AccessRefused(
            f"{principal.name} asked for {approval.id}: another person approves it",
            principal=principal,
            field="id",
            value=approval.id,
        )


def require_unchanged(session: Session, approval: ApprovalRow) -> None:
    """Require that every document is still the one that the record saw.

    Raises:
        Conflict: one has changed since.
    """
    keys = [(kind_of(edit.document), edit.document.metadata.name) for edit in approval.edits]
    stored = documents.find_documents(session, keys)
    for key, edit in zip(keys, approval.edits, strict=True):
        if stored.get(key) != edit.before:
            raise Conflict(
                f"the {key[0]} {key[1]} has changed since {approval.id} was asked for",
                field="id",
                value=approval.id,
                hint="send the change again",
            )


def _find_waiting(session: Session, digest: str, at: datetime) -> list[ApprovalRow]:
    query = select(Approval.__table__).where(
        Approval.digest == digest, Approval.state == "waiting", Approval.expires_at > at
    )
    return [_row(row) for row in session.execute(query.order_by(Approval.made_at))]


def _row(row: Any) -> ApprovalRow:
    values = dict(row._mapping)
    values["targets"] = tuple(values["targets"].split())
    values["edits"] = _decode_edits(values["edits"])
    return ApprovalRow(**values)
