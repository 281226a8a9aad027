"""Find the people who must agree to edits, and enforce that for direct changes.

A change that a policy does not let one person make alone is refused, and becomes a proposal. It is
made when everybody whom the policies ask for has approved it, or has sent the same change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from msgspec import UNSET, Struct
from sqlalchemy.orm import Session

from compatgate.core.matrix import ANY_TARGET
from compatgate.documents.specs import TargetDoc
from compatgate.documents.weakening import loosens, takes_approval, takes_back
from compatgate.errors import Conflict
from compatgate.kit.database.database import Database
from compatgate.kit.principal import matches, names_of
from compatgate.service.access.token_table import list_aliases
from compatgate.service.matrix.documents.blessing import list_taken, targets_of
from compatgate.service.matrix.documents.repository import DocumentLookup
from compatgate.service.matrix.documents.revisions import Edit
from compatgate.service.matrix.proposals import repository as proposals
from compatgate.service.matrix.proposals.repository import Proposal, ProposalEvent
from compatgate.service.matrix.proposals.schemas import Requirement
from compatgate.service.matrix.snapshots.reader import Snapshots


class Approval(Protocol):
    """An event by which somebody approves."""

    actor: Any


class Demand(Requirement, frozen=True):
    """The requirements of one target's policy, which count approvals."""

    def count(self, approvals: Iterable[Approval]) -> int:
        """Return how many approvals count."""
        return sum(
            self.approvers is None or matches(self.approvers, one.actor) for one in approvals
        )

    def describe_lack(self, approvals: Iterable[Approval]) -> str:
        """Return which approvals are missing, in words; empty: none is."""
        lacking = self.people - 1 - self.count(approvals)
        if lacking <= 0:
            return ""
        of = f" of {', '.join(self.approvers)}" if self.approvers else ""
        return f"{self.target} requires {lacking} more approval{'s' if lacking > 1 else ''}{of}"


def find_demands(
    lookup: DocumentLookup, edits: Sequence[Edit], author: frozenset[str]
) -> list[Demand]:
    """Return what the stored policies of the concerned targets ask of edits, by target."""
    taken = {name for edit in edits for name in list_taken(lookup, edit)}
    people = taken | _named(edits, lambda edit: loosens(edit.before, edit.after))
    proposed = taken | _named(edits, lambda edit: not takes_back(edit.before, edit.after))
    seized = {edit.document.metadata.name for edit in edits if seizes(lookup.session, edit, author)}
    found = []
    for target in lookup.targets(people | proposed):
        name, policy = target.metadata.name, target.spec.policy
        number = 1 if policy.approvals is UNSET else policy.approvals
        needs = number if {name, ANY_TARGET} & people else 1
        if name in seized:
            seized.remove(name)
            needs = max(needs, 2)
        by_proposal = policy.changes == "proposals" and bool({name, ANY_TARGET} & proposed)
        if needs > 1 or by_proposal:
            approvers = None if policy.approvers is UNSET else policy.approvers
            found.append(Demand(name, needs, approvers, by_proposal))
    found += [Demand(name, 2, None, proposed=False) for name in seized]  # of new targets
    return sorted(found, key=lambda one: one.target)


def seizes(session: Session, edit: Edit, person: frozenset[str]) -> bool:
    """Return whether an edit makes a person an approver in place of others, or the only one.

    The person counts under the names of every token that belongs to the person.
    """
    before, after = edit.before, edit.after
    if not isinstance(after, TargetDoc) or after.spec.policy.approvers is UNSET:
        return False
    former = before if isinstance(before, TargetDoc) else None
    person = list_aliases(session, person)
    return takes_approval(
        former, after, lambda one: any(matches((one.lower(),), name) for name in person)
    )


def _named(edits: Iterable[Edit], concerns: Callable[[Edit], bool]) -> set[str]:
    return {name for edit in edits if concerns(edit) for name in targets_of(edit)}


def list_lacks(demands: Iterable[Demand], approvals: Sequence[ProposalEvent]) -> list[str]:
    """Return which approvals are missing, in words."""
    return [lack for demand in demands if (lack := demand.describe_lack(approvals))]


class ProposalNeeded(Conflict):
    """A policy does not allow one person to make this change; the change became a proposal."""

    slug = "proposal-needed"
    lacks = "proposal"

    def __init__(
        self, problem: str, *, store: Callable[[Session], None] | None, value: str, hint: str
    ) -> None:
        super().__init__(problem, field=self.lacks, value=value, hint=hint)
        self.store = store


class ApprovalNeeded(ProposalNeeded):
    """A policy asks for several people, and too few have agreed to this change."""

    slug = "approval-needed"
    lacks = "approval"


@contextmanager
def propose_refused(database: Database, snapshots: Snapshots) -> Iterator[Session]:
    """Give a writing transaction; where it is refused, store what its error holds.

    After it, the snapshot of the matrix is new.
    """
    try:
        with database.writing() as session:
            yield session
    except ProposalNeeded as error:
        if error.store is not None:
            with database.writing() as session:
                error.store(session)
        raise
    snapshots.refresh()


class Consent(Struct, frozen=True):
    """The people who agreed to a change, the author first; only the author without a proposal."""

    proposal: str | None = None
    people: tuple[str, ...] = ()

    def to_detail(self) -> dict[str, Any]:
        """Return the members of the revision's audit record."""
        return {"people": list(self.people)} if self.proposal else {}

    def note(self, session: Session, revision: int) -> None:
        """Store which revision a proposal became."""
        if self.proposal:
            session.get_one(Proposal, self.proposal).revision = revision


def require_consent(
    session: Session, edits: Sequence[Edit], *, author: str, reason: str, action: str, identity: str
) -> Consent:
    """Return the consent to a direct change; refuse it where a policy asks for more.

    Another person who has sent the same change counts as an approval of theirs.
    """
    names = names_of(author, identity)
    demands = find_demands(DocumentLookup(session), edits, names)
    if not demands:
        return Consent()
    waiting = proposals.find_open(session, proposals.digest_edits(edits))
    other = next((one for one in waiting if one.names.isdisjoint(names)), None)
    if other is not None:
        return _join(session, other, demands, author=author, identity=identity)
    if waiting:
        raise _refuse(waiting[0].id, demands, waiting[0].approvals, None)
    people = any(demand.people > 1 for demand in demands)
    made = proposals.draft_proposal(
        session,
        edits,
        author=author,
        identity=identity,
        reason=reason,
        action=action,
        asking=[demand.target for demand in demands],
        automatic=people and not any(demand.proposed for demand in demands),
        lifetime=proposals.LIFETIME,
    )
    raise _refuse(made.id, demands, (), lambda new: proposals.store_proposal(new, made))


def _join(
    session: Session, other: Proposal, demands: Sequence[Demand], *, author: str, identity: str
) -> Consent:
    """Count a direct change as an approval of another person's proposal; merge it if it can be."""
    number = other.id
    agreed = other.has_approval_of(names_of(author, identity))

    def agree(writing: Session) -> None:
        if not agreed:
            row = proposals.find_proposal(writing, number)
            text = "sent the same change"
            proposals.add_event(writing, row, "approve", actor=author, identity=identity, text=text)

    agree(session)
    row = proposals.find_proposal(session, number)
    if list_lacks(demands, row.approvals) or any(demand.proposed for demand in demands):
        raise _refuse(number, demands, row.approvals, agree)
    proposals.end_proposal(row, "merged", by=author)
    proposals.add_event(session, row, "merge", actor=author, identity=identity)
    return Consent(number, (row.author, *(one.actor for one in row.approvals)))


def _refuse(
    number: str,
    demands: Sequence[Demand],
    approvals: Sequence[ProposalEvent],
    store: Callable[[Session], None] | None,
) -> ProposalNeeded:
    lacking = [demand for demand in demands if demand.describe_lack(approvals)]
    if lacking:
        most = max(demand.people for demand in lacking)
        targets = ", ".join(demand.target for demand in lacking[:5])
        count = "two people" if most == 2 else f"{most} people"
        rest = "the other" if most == 2 else "the others"
        return ApprovalNeeded(
            f"the policy of {targets} requires {count}: {number} waits for {rest}",
            store=store,
            value=number,
            hint=f"another person must read and approve it within {proposals.LIFETIME.days} days:"
            f" compatgate matrix show {number}; or sends the same change",
        )
    targets = ", ".join(demand.target for demand in demands if demand.proposed)
    return ProposalNeeded(
        f"the policy of {targets} requires a proposal: {number} is open",
        store=store,
        value=number,
        hint=f"read and merge the proposal: compatgate matrix show {number}",
    )
