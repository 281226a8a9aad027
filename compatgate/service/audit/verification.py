"""Verify the audit chain with the rows that it covers: decisions, verdicts, revisions, tokens.

A verification that finds nothing wrong seals what it read: it adds a link with its results. The
next one begins there, so its cost is that of what is new. A full verification reads everything.

The chain vouches for decisions by anchors: the last batch of each writer, with its hash
(`compatgate.service.gate.batches`). Until schema 0006 it had a link for each batch; these links
are verified as they were made. Batches of the last minutes before a seal are verified once more,
because a transaction that was open then may have added to them.

Decisions that an archive has may be removed (`compatgate.service.audit.retention`). The chain has
the digest of the archive's file, which is verified alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

import msgspec
from msgspec import Struct
from sqlalchemy import func, select, tuple_
from sqlalchemy.orm import Session

from compatgate.core.performance import sha256
from compatgate.documents.specs import KINDS, decode, encode
from compatgate.errors import DamagedContent
from compatgate.kit import clock
from compatgate.service.audit import repository as audit
from compatgate.service.audit.repository import AuditRecord
from compatgate.service.audit.retention import find_archived
from compatgate.service.gate import anchors
from compatgate.service.gate import repository as decisions
from compatgate.service.gate.batches import (
    FIRST_PREVIOUS,
    NUMBERS,
    StoredBatch,
    WriterHead,
    decode_claims,
    encode_values,
    hash_batch,
)
from compatgate.service.gate.repository import Verdict
from compatgate.service.gate.verdict_bodies import read_body
from compatgate.service.matrix import repository as documents
from compatgate.service.matrix import revisions
from compatgate.service.matrix.models import DocumentChange, Revision
from compatgate.service.runs import discards, evidence, pools
from compatgate.service.tokens import repository as tokens

SEAL = "audit.seal"
"""Action of a link that holds the result of a verification."""
_MAX_PROBLEMS = 100
"""Maximum number of reported problems."""
_SETTLED = timedelta(minutes=10)
"""No transaction stays open for so long."""
_PER_QUERY = 500


class SealedState(Struct, frozen=True):
    """What a verification found in order; a link of the chain holds it.

    Attributes:
        legacy: decisions that links cover, as until schema 0006.
        batch: all batches up to this one are verified, and no older one is still to come.
        batches: number of batches up to that one.
        decisions: number of decisions up to that one.
        revisions: number of revisions.
        evidence: number of evidence rows.
    """

    legacy: int = 0
    batch: int = 0
    batches: int = 0
    decisions: int = 0
    revisions: int = 0
    evidence: int = 0


class ChainReport(Struct, frozen=True):
    """The result of a verification.

    Attributes:
        links: number of links.
        decisions: number of decisions.
        revisions: number of revisions that the chain covers.
        evidence: number of evidence rows that the chain covers.
        head: hash of the last link; store it elsewhere to detect truncation.
        problems: mismatches, in words; empty: the chain is intact.
        batches: number of batches of decisions.
        tokens: number of tokens.
        since: link of the seal where the verification began; 0: everything was read.
        checked_links: links that this verification read.
        checked_decisions: decisions that this verification read.
        unanchored: decisions that no anchor covers yet.
    """

    links: int
    decisions: int
    revisions: int
    evidence: int
    head: str
    problems: tuple[str, ...]
    batches: int = 0
    tokens: int = 0
    since: int = 0
    checked_links: int = 0
    checked_decisions: int = 0
    unanchored: int = 0

    @property
    def ok(self) -> bool:
        """Return whether the chain is intact."""
        return not self.problems

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {"ok": self.ok, **msgspec.structs.asdict(self), "problems": list(self.problems)}


class Verification(Struct, frozen=True):
    """A report, and what to seal of it.

    Attributes:
        report: for the caller.
        state: None: nothing is new, or something is wrong.
    """

    report: ChainReport
    state: SealedState | None


def verify_chain(
    session: Session, *, expected_head: str | None = None, full: bool = True
) -> Verification:
    """Recompute hashes, and compare the rows that the chain covers.

    Args:
        session: to read from; one moment of the database is checked.
        expected_head: a hash stored earlier, which must still be in the chain.
        full: from the first link; else from the last seal.
    """
    sealed = _find_seal(session)
    since, head, state = (None if full else sealed) or (0, audit.GENESIS, SealedState())
    start = _find_start(session, expected_head, since, head)
    links = _LinkWalk(session, start, since, state)
    batches = _BatchWalk(session, state, links.mixed)
    problems: list[str] = []
    everything = (links.problems(), batches.problems(), _check_whole(session, links, expected_head))
    for problem in (problem for some in everything for problem in some):
        problems.append(problem)
        if len(problems) >= _MAX_PROBLEMS:
            break
    report = ChainReport(
        links.seq,
        links.legacy + batches.decisions,
        links.revisions,
        links.evidence,
        links.head,
        tuple(problems),
        batches.batches,
        len(tokens.read_tokens(session)),
        since,
        links.checked,
        links.checked_decisions + batches.checked_decisions,
        batches.unanchored(),
    )
    is_new = links.last_change > (sealed[0] if sealed else 0)
    is_new = is_new and not _has_mixed_after(batches)  # then the next one needs their links
    return Verification(report, None if problems or not is_new else _state(links, batches))


def _has_mixed_after(batches: _BatchWalk) -> bool:
    return batches.last_mixed >= (batches.settled.batch + 1) * NUMBERS


def _state(links: _LinkWalk, batches: _BatchWalk) -> SealedState:
    settled = batches.settled
    return SealedState(
        links.legacy, settled.batch, settled.batches, settled.decisions, links.revisions,
        links.evidence,
    )  # fmt: skip


def append_seal(session: Session, verified: Verification) -> None:
    """Append the result of a verification, in a writing session that no other overlaps."""
    if verified.state is None:
        return
    audit.append(
        session,
        at=clock.now(),
        actor="compatgate",
        action=SEAL,
        subject=f"link {verified.report.links}",
        detail={
            "link": verified.report.links,
            "head": verified.report.head,
            **msgspec.structs.asdict(verified.state),
        },
    )


def _find_seal(session: Session) -> tuple[int, str, SealedState] | None:
    """Return number and hash of the link that was sealed last, and the state; None: none was."""
    query = select(AuditRecord.__table__).where(AuditRecord.action == SEAL)
    row = session.execute(query.order_by(AuditRecord.seq.desc()).limit(1)).first()
    if row is None or audit.hash_of(dict(row._mapping)) != row.hash:
        return None
    detail = msgspec.json.decode(row.detail)
    state = msgspec.convert(
        {name: detail[name] for name in SealedState.__struct_fields__}, SealedState
    )
    return detail["link"], detail["head"], state


def _find_start(
    session: Session, expected_head: str | None, since: int, head: str
) -> tuple[int, str]:
    """Return number and hash of the link where the walk begins: an expected head must be walked."""
    if expected_head is None or not since:
        return since, head
    query = select(AuditRecord.seq, AuditRecord.previous).where(AuditRecord.hash == expected_head)
    row = session.execute(query).first()
    return (row.seq - 1, row.previous) if row is not None and row.seq <= since else (since, head)


class _LinkWalk:
    """A pass over links, and the rows that single links cover."""

    def __init__(
        self, session: Session, start: tuple[int, str], since: int, state: SealedState
    ) -> None:
        self._session = session
        self._since = since
        self.seq, self.head = start
        self.heads = {self.head}
        self.legacy = state.legacy
        self.revisions = state.revisions
        self.evidence = state.evidence
        self.checked = 0
        self.checked_decisions = 0
        self.last_change = 0
        self.mixed: list[tuple[int, int]] = []
        first_batch = session.execute(select(func.min(StoredBatch.id))).scalar()
        self._first_of_batches = (first_batch or 2**62) * NUMBERS
        self._judged = evidence.iter_rows(session)
        for _ in range(state.evidence):
            next(self._judged, None)
        self._lines = decisions.read_decision_lines(session, self.legacy + 1)
        self._next = next(self._lines, None)

    def problems(self) -> Iterator[str]:
        query = select(AuditRecord.__table__).where(AuditRecord.seq > self.seq)
        query = query.order_by(AuditRecord.seq).execution_options(yield_per=1000)
        for row in self._session.execute(query):
            link = dict(row._mapping)
            yield from self._link(link)
            self.seq, self.head = link["seq"], link["hash"]
            self.heads.add(self.head)
            if link["action"] != SEAL:
                self.last_change = self.seq

    def _link(self, link: dict[str, Any]) -> Iterator[str]:
        seq = link["seq"]
        self.checked += 1
        if seq != self.seq + 1:
            yield f"link {seq}: links {self.seq + 1} to {seq - 1} are missing"
        elif link["previous"] != self.head:
            yield f"link {seq}: does not continue link {self.seq}"
        if audit.hash_of(link) != link["hash"]:
            yield f"link {seq}: was changed after it was written"
            return
        if seq <= self._since:
            return
        detail = msgspec.json.decode(link["detail"])
        if link["action"] == "decisions":
            yield from self._decisions(seq, detail)
        elif link["action"] == anchors.ACTION:
            yield from self._anchor(seq, detail)
        elif link["action"].startswith("matrix."):
            yield from self._revision(seq, detail)
        elif link["action"].startswith("run.") and "evidence" in detail:
            yield from self._evidence(seq, detail)
        elif link["action"] == pools.ACTION:
            yield from self._discard(seq, link["subject"], detail)

    def _discard(self, seq: int, run: str, detail: dict[str, Any]) -> Iterator[str]:
        found = discards.find_discards(self._session, [run]).get(run)
        if not pools.is_vouched(detail, found):
            yield f"discard of run {run}: changed or missing (link {seq})"

    def _anchor(self, seq: int, detail: dict[str, Any]) -> Iterator[str]:
        """Compare the batches that a link anchors."""
        for some in _chunks(sorted(detail["writers"].items())):
            keys = [(writer, sequence) for writer, (sequence, _) in some]
            query = select(StoredBatch.writer, StoredBatch.sequence, StoredBatch.hash).where(
                tuple_(StoredBatch.writer, StoredBatch.sequence).in_(keys)
            )
            found = {
                (r.writer, r.sequence): bytes(r.hash).hex() for r in self._session.execute(query)
            }
            for writer, (sequence, hashed) in some:
                if found.get((writer, sequence)) != hashed:
                    yield f"batch {sequence} of writer {writer}: changed or missing (link {seq})"

    def _decisions(self, seq: int, detail: dict[str, Any]) -> Iterator[str]:
        first, count = detail["first"], detail["count"]
        if first >= self._first_of_batches:
            yield from self._mixed(seq, detail)
            return
        if first != self.legacy + 1:
            yield f"link {seq}: decisions {self.legacy + 1} to {first - 1} have no link"
        self.legacy = first + count - 1
        lines = self._take_decisions(self.legacy)
        self.checked_decisions += len(lines)
        found = sha256(decisions.encode_decision_lines(lines))
        if len(lines) != count or found != detail["sha256"]:
            yield f"decisions {first} to {self.legacy}: changed or missing (link {seq})"
        yield from self._linked_verdicts(seq, detail)

    def _mixed(self, seq: int, detail: dict[str, Any]) -> Iterator[str]:
        """Compare decisions that an older program added between batches, during an upgrade."""
        first, count = detail["first"], detail["count"]
        last = first + count - 1
        lines = list(decisions.read_decision_lines(self._session, first, last))
        self.checked_decisions += len(lines)
        self.mixed.append((first, last))
        if sha256(decisions.encode_decision_lines(lines)) != detail["sha256"]:
            yield f"decisions {first} to {last}: changed or missing (link {seq})"
        yield from self._linked_verdicts(seq, detail)

    def _linked_verdicts(self, seq: int, detail: dict[str, Any]) -> Iterator[str]:
        claims = detail.get("verdicts", {})
        for verdict_id, (digest, _) in _digest_bodies(self._session, claims).items():
            if digest != claims[verdict_id]:
                yield f"verdict {verdict_id}: changed or missing (link {seq})"

    def _take_decisions(self, last: int) -> list[list[Any]]:
        """Return the next stored decisions, up to a number."""
        taken = []
        while self._next is not None and self._next[0] <= last:
            taken.append(self._next)
            self._next = next(self._lines, None)
        return taken

    def _evidence(self, seq: int, detail: dict[str, Any]) -> Iterator[str]:
        self.evidence += 1
        row = next(self._judged, None)
        if row is None or (
            row.seq,
            evidence.fingerprint(row),
            evidence.binding_fingerprint(row),
        ) != (detail["evidence"], detail["sha256"], detail.get("bound")):
            yield f"evidence {detail['evidence']}: changed or missing (link {seq})"

    def _revision(self, seq: int, detail: dict[str, Any]) -> Iterator[str]:
        number = detail["revision"]
        if number != self.revisions + 1:
            yield f"link {seq}: revisions {self.revisions + 1} to {number - 1} have no link"
        self.revisions = number
        query = select(Revision.__table__).where(Revision.number == number)
        revision = self._session.execute(query).first()
        changes = self._session.execute(
            select(DocumentChange.__table__).where(DocumentChange.revision == number)
        ).all()
        found = [dict(change._mapping) for change in changes]
        if (
            revision is None
            or revisions.digest_revision(dict(revision._mapping), found) != detail["sha256"]
        ):
            yield f"revision {number}: changed or missing (link {seq})"
        elif revision.proposal != (detail.get("proposal") or detail.get("approval")):
            yield f"revision {number}: names another proposal than link {seq}"


class _Settled(Struct, frozen=True):
    batch: int
    batches: int
    decisions: int


class _BatchWalk:
    """A pass over batches in the order of their numbers, with their decisions and verdicts."""

    def __init__(self, session: Session, state: SealedState, mixed: list[tuple[int, int]]) -> None:
        self._session = session
        self._mixed = mixed
        self._heads: dict[str, tuple[int, str]] = {}
        self._ahead: dict[str, int] = {}
        self._anchored = dict[str, int]()
        self._old = clock.now() - _SETTLED
        self._archived = find_archived(session)
        self._legacy_end = self._find_legacy_end(state)
        self.last_mixed = -1
        self.batches = state.batches
        self.decisions = state.decisions
        self.checked_decisions = 0
        self.settled = _Settled(state.batch, state.batches, state.decisions)
        self._lines = decisions.read_decision_lines(session, self._legacy_end)
        self._next = next(self._lines, None)

    def _find_legacy_end(self, state: SealedState) -> int:
        """Return the smallest number of a decision that a batch to be verified may have."""
        if state.batch:
            return (state.batch + 1) * NUMBERS
        query = select(func.min(StoredBatch.id))
        first = self._session.execute(query).scalar()
        return (first or 2**62 // NUMBERS) * NUMBERS

    def problems(self) -> Iterator[str]:
        query = select(StoredBatch.__table__).where(StoredBatch.id > self.settled.batch)
        query = query.order_by(StoredBatch.id).execution_options(yield_per=1000)
        recent = False
        for row in self._session.execute(query):
            yield from self._batch(row)
            recent = recent or (row.decided_at > self._old and not row.late)
            if not recent:
                self.settled = _Settled(row.id, self.batches, self.decisions)
        yield from self._unknown_decisions(2**62)

    def _batch(self, row: Any) -> Iterator[str]:
        yield from self._unknown_decisions(row.id * NUMBERS)
        values = self._take((row.id + 1) * NUMBERS)
        if row.id <= self._archived and len(values) != row.count:
            self._skip_archived(row)
            return
        self.batches += 1
        self.decisions += len(values)
        self.checked_decisions += len(values)
        previous = self._previous(row)
        if previous is None:
            yield f"batch {row.sequence} of writer {row.writer}: the batch before is missing"
        name = f"batch {row.sequence} of writer {row.writer}"
        first = row.id * NUMBERS
        span = f"decisions {first} to {first + row.count - 1}"
        claims = _read_claims(row.verdicts)
        stored = bytes(row.hash).hex()
        content = encode_values(values)
        if len(values) != row.count:
            yield f"{span}: changed or missing ({name})"
        elif previous is not None and stored != hash_batch(
            row.writer, row.sequence, previous, content, claims
        ):
            yield f"{span}: changed ({name})"
        yield from self._verdicts(row, claims, name)
        self._heads[row.writer] = (row.sequence, stored)
        if row.sequence > self._anchored_at(row.writer):
            self._ahead[row.writer] = self._ahead.get(row.writer, 0) + row.count

    def _skip_archived(self, row: Any) -> None:
        """Count a batch whose decisions an archive has, and were removed."""
        self.batches += 1
        self.decisions += row.count
        self._heads[row.writer] = (row.sequence, bytes(row.hash).hex())

    def _previous(self, row: Any) -> str | None:
        """Return the hash of the batch before; None: it is missing."""
        if row.sequence == 1:
            return FIRST_PREVIOUS
        sequence, hashed = self._heads.get(row.writer, (0, ""))
        if sequence == row.sequence - 1:
            return hashed
        query = select(StoredBatch.hash).where(
            StoredBatch.writer == row.writer, StoredBatch.sequence == row.sequence - 1
        )
        found = self._session.execute(query).scalar()
        return None if found is None else bytes(found).hex()

    def _verdicts(self, row: Any, claims: dict[str, str], name: str) -> Iterator[str]:
        """Compare the verdicts that a batch brought; another batch may have been first."""
        for verdict_id, (digest, batch) in _digest_bodies(self._session, claims).items():
            if digest == claims[verdict_id]:
                continue
            if batch is not None and batch != row.id and self._claims(batch, verdict_id) == digest:
                continue
            if digest is not None and batch is None:  # an audit link brought it
                continue
            yield f"verdict {verdict_id}: changed or missing ({name})"

    def _claims(self, batch: int, verdict_id: str) -> str | None:
        query = select(StoredBatch.verdicts).where(StoredBatch.id == batch)
        return _read_claims(self._session.execute(query).scalar()).get(verdict_id)

    def _take(self, end: int) -> list[list[Any]]:
        """Return the values of the next stored decisions, before a number.

        Those that links cover are left out.
        """
        taken = []
        while self._next is not None and self._next[0] < end:
            number, *values = self._next
            while self._mixed and self._mixed[0][1] < number:
                self._mixed.pop(0)
            if self._mixed and self._mixed[0][0] <= number:
                self.decisions += 1
                self.last_mixed = number
            else:
                taken.append(values)
            self._next = next(self._lines, None)
        return taken

    def _unknown_decisions(self, end: int) -> Iterator[str]:
        first = self._next[0] if self._next else 0
        if unknown := self._take(end):
            yield f"{len(unknown)} decisions from {first} on have no batch"

    def _anchored_at(self, writer: str) -> int:
        if writer not in self._anchored:
            query = select(WriterHead.sequence).where(WriterHead.writer == writer)
            self._anchored[writer] = self._session.execute(query).scalar() or 0
        return self._anchored[writer]

    def unanchored(self) -> int:
        """Return the number of decisions that no anchor covers."""
        return sum(self._ahead.values())


def _digest_bodies(
    session: Session, ids: Iterable[str]
) -> dict[str, tuple[str | None, int | None]]:
    """Return the digests of verdicts, and the batches that brought them; None: not stored."""
    found: dict[str, tuple[str | None, int | None]] = dict.fromkeys(ids, (None, None))
    for some in _chunks(list(found)):
        rows = session.execute(select(Verdict.__table__).where(Verdict.id.in_(some)))
        for row in rows:
            found[row.id] = (_digest_body(row), row.batch)
    return found


def _read_claims(stored: str | None) -> dict[str, str]:
    """Return stored claims; damaged ones are empty, so the hash of their batch does not match."""
    try:
        return decode_claims(stored)
    except (ValueError, msgspec.MsgspecError):
        return {}


def _digest_body(row: Any) -> str:
    try:
        return sha256(read_body(row.body, row.packed).encode())
    except DamagedContent:
        return ""


def _chunks(items: list[Any]) -> Iterator[list[Any]]:
    for start in range(0, len(items), _PER_QUERY):
        yield items[start : start + _PER_QUERY]


def _check_whole(session: Session, walk: _LinkWalk, expected_head: str | None) -> Iterator[str]:
    """Yield problems that need the whole chain; begin it after the walk."""
    if expected_head is not None and expected_head not in walk.heads:
        yield f"the chain does not contain the expected head {expected_head}"
    first_batch = session.execute(select(func.min(StoredBatch.id))).scalar()
    last = _last_legacy(session, first_batch)
    if last > walk.legacy:
        yield f"decisions {walk.legacy + 1} to {last} have no link"
    if (latest := revisions.latest_revision(session)) > walk.revisions:
        yield f"revisions {walk.revisions + 1} to {latest} have no link"
    if (last := evidence.latest_number(session)) > walk.evidence:
        yield f"evidence {walk.evidence + 1} to {last} has no link"
    yield from _unlinked_discards(session)
    yield from _changed_documents(session, latest)
    yield from _changed_tokens(session)


def _unlinked_discards(session: Session) -> Iterator[str]:
    links = select(func.count()).select_from(AuditRecord).where(AuditRecord.action == pools.ACTION)
    linked, stored = session.execute(links).scalar_one(), discards.count_discards(session)
    if linked != stored:
        yield f"{stored} runs are discarded, but {linked} links say so"


def _last_legacy(session: Session, first_batch: int | None) -> int:
    query = select(func.max(decisions.Decision.id))
    if first_batch is not None:
        query = query.where(decisions.Decision.id < first_batch * NUMBERS)
    return session.execute(query).scalar() or 0


def _changed_documents(session: Session, latest: int) -> Iterator[str]:
    """Yield documents that differ from their last revision."""
    history = {
        (kind, name): (text, revision)
        for kind, name, text, revision in revisions.read_texts_at(session, latest)
    }
    for kind in KINDS:
        for name, text, revision in documents.read_texts(session, kind):
            made, number = history.pop((kind, name), ("", 0))
            if number != revision or not (text == made or _is_same_document(kind, text, made)):
                yield f"{kind} {name}: differs from its last revision"
    for kind, name in history:
        yield f"{kind} {name}: is missing, and no revision deleted it"


def _is_same_document(kind: str, text: str, other: str) -> bool:
    """Return whether two texts say the same: an older program may have written one of them."""
    try:
        return encode(decode(kind, text)) == encode(decode(kind, other))
    except msgspec.MsgspecError:
        return False


def _changed_tokens(session: Session) -> Iterator[str]:
    """Yield tokens that differ from what the chain says of them."""
    query = select(AuditRecord.action, AuditRecord.subject, AuditRecord.detail)
    query = query.where(AuditRecord.action.startswith("token.", autoescape=True))
    said: dict[str, str | None] = {}
    revoked: set[str] = set()
    for action, _, detail in session.execute(query.order_by(AuditRecord.seq)):
        told = msgspec.json.decode(detail)
        if action == "token.adopt":
            said.update(told["tokens"])
        elif action == "token.revoke":
            revoked.add(told["id"])
        elif "id" in told:
            said[told["id"]] = told.get("sha256", said.get(told["id"]))
    for token_id, (digest, ended) in tokens.read_tokens(session).items():
        if token_id not in said:
            yield f"token {token_id}: no link made it"
        elif said.pop(token_id) not in (None, digest):
            yield f"token {token_id}: was changed"
        if ended != (token_id in revoked):
            yield f"token {token_id}: is {'' if ended else 'not '}revoked, unlike its link says"
    yield from (f"token {token_id}: is missing" for token_id in said)
