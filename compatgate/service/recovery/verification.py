"""Verify the audit chain with the rows that it covers: decisions, verdicts, revisions, tokens.

A verification that finds nothing wrong seals what it read: it adds a link with its results. The
next one begins there, so its cost is that of what is new. A full verification reads everything.

The chain vouches for decisions by anchors: the last batch of each writer, with its hash
(`gate.decisions.batches`). Until schema 0006 it had a link for each batch; these links
are verified as they were made. Batches of the last minutes before a seal are verified once more,
because a transaction that was open then may have added to them.

Decisions of past months may be deleted (`retention`); a link names their
batches, whose rows stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import chain, islice
from typing import Any

import msgspec
from msgspec import Struct
from sqlalchemy import func, select, tuple_
from sqlalchemy.orm import Session

from compatgate.core.performance import sha256
from compatgate.documents.specs import KINDS, decode, encode
from compatgate.errors import CompatgateError
from compatgate.kit.database.database import Database
from compatgate.kit.database.tables import in_parts
from compatgate.service.access import token_table as tokens
from compatgate.service.audit import chain as audit
from compatgate.service.audit.chain import AuditRecord
from compatgate.service.audit.schemas import ChainBody
from compatgate.service.gate.decisions import batches
from compatgate.service.gate.decisions import service as decisions
from compatgate.service.gate.decisions.batches import NUMBERS, StoredBatch, append_anchor
from compatgate.service.matrix.documents import repository as documents
from compatgate.service.matrix.documents import revisions
from compatgate.service.matrix.documents.models import DocumentChange, Revision
from compatgate.service.recovery.batch_walk import BatchWalk, SealedState, digest_bodies
from compatgate.service.runs.evidence import evidence, pools

SEAL = "audit.seal"
"""Action of a link that holds the result of a verification."""
_MAX_PROBLEMS = 100
"""Maximum number of reported problems."""


class Verification(Struct, frozen=True):
    """A report, and what to seal of it; None: nothing is new, or something is wrong."""

    report: ChainBody
    state: SealedState | None


def verify_chain(
    session: Session, *, expected_head: str | None = None, full: bool = True
) -> Verification:
    """Recompute hashes, and compare the rows that the chain covers."""
    sealed = _find_seal(session)
    since, head, state = (None if full else sealed) or (0, audit.GENESIS, SealedState())
    start = since, head
    if expected_head is not None and since:  # an expected head must be walked
        query = select(AuditRecord.seq, AuditRecord.previous)
        row = session.execute(query.where(AuditRecord.hash == expected_head)).first()
        if row is not None and row.seq <= since:
            start = row.seq - 1, row.previous
    links = _LinkWalk(session, start, since, state)
    batches = BatchWalk(session, state, links.mixed)
    everything = chain(
        links.problems(), batches.problems(), _check_whole(session, links, expected_head)
    )
    problems = list(islice(everything, _MAX_PROBLEMS))
    report = ChainBody(
        not problems,
        links.seq,
        links.legacy + batches.decisions,
        links.revisions,
        links.evidence,
        links.head,
        problems,
        batches.batches,
        len(tokens.read_tokens(session)),
        since,
        links.checked,
        links.checked_decisions + batches.checked_decisions,
        batches.unanchored(),
    )
    settled = batches.settled
    is_new = links.last_change > (sealed[0] if sealed else 0)
    needs_links = batches.last_mixed >= (settled.batch + 1) * NUMBERS  # the next one reads them
    if problems or not is_new or needs_links:
        return Verification(report, None)
    found = msgspec.structs.replace(
        settled, legacy=links.legacy, revisions=links.revisions, evidence=links.evidence
    )
    return Verification(report, found)


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
        elif link["action"] == batches.ACTION:
            yield from self._anchor(seq, detail)
        elif link["action"].startswith("matrix."):
            yield from self._revision(seq, detail)
        elif link["action"].startswith("run.") and "evidence" in detail:
            yield from self._evidence(seq, detail)
        elif link["action"] == pools.ACTION:
            run = link["subject"]
            discard = evidence.find_discards(self._session, [run]).get(run)
            if discard is None or discard.fingerprint != detail.get("sha256"):
                yield f"discard of run {run}: changed or missing (link {seq})"

    def _anchor(self, seq: int, detail: dict[str, Any]) -> Iterator[str]:
        for some in in_parts(sorted(detail["writers"].items())):
            keys = [(writer, sequence) for writer, (sequence, _) in some]
            query = select(StoredBatch.writer, StoredBatch.sequence, StoredBatch.hash).where(
                tuple_(StoredBatch.writer, StoredBatch.sequence).in_(keys)
            )
            found = {
                (r.writer, r.sequence): bytes(r.hash).hex() for r in self._session.execute(query)
            }
            for writer, (sequence, hashed) in some:
                if sequence and found.get((writer, sequence)) != hashed:  # 0: no batch yet
                    yield f"batch {sequence} of writer {writer}: changed or missing (link {seq})"

    def _decisions(self, seq: int, detail: dict[str, Any]) -> Iterator[str]:
        first, count = detail["first"], detail["count"]
        if first >= self._first_of_batches:
            yield from self._mixed(seq, detail)
            return
        if first != self.legacy + 1:
            yield f"link {seq}: decisions {self.legacy + 1} to {first - 1} have no link"
        self.legacy = first + count - 1
        lines = []
        while self._next is not None and self._next[0] <= self.legacy:
            lines.append(self._next)
            self._next = next(self._lines, None)
        self.checked_decisions += len(lines)
        if len(lines) != count or sha256(batches.encode_values(lines)) != detail["sha256"]:
            yield f"decisions {first} to {self.legacy}: changed or missing (link {seq})"
        yield from self._linked_verdicts(seq, detail)

    def _mixed(self, seq: int, detail: dict[str, Any]) -> Iterator[str]:
        """Compare decisions that an older program added between batches, during an upgrade."""
        first, count = detail["first"], detail["count"]
        last = first + count - 1
        lines = list(decisions.read_decision_lines(self._session, first, last))
        self.checked_decisions += len(lines)
        self.mixed.append((first, last))
        if sha256(batches.encode_values(lines)) != detail["sha256"]:
            yield f"decisions {first} to {last}: changed or missing (link {seq})"
        yield from self._linked_verdicts(seq, detail)

    def _linked_verdicts(self, seq: int, detail: dict[str, Any]) -> Iterator[str]:
        claims = detail.get("verdicts", {})
        for verdict_id, (digest, _) in digest_bodies(self._session, claims).items():
            if digest != claims[verdict_id]:
                yield f"verdict {verdict_id}: changed or missing (link {seq})"

    def _evidence(self, seq: int, detail: dict[str, Any]) -> Iterator[str]:
        self.evidence += 1
        stated = (detail["evidence"], detail["sha256"], detail.get("bound"))
        row = next(self._judged, None)
        prints = row and (row.seq, evidence.fingerprint(row), evidence.binding_fingerprint(row))
        if prints != stated:
            yield f"evidence {detail['evidence']}: changed or missing (link {seq})"

    def _revision(self, seq: int, detail: dict[str, Any]) -> Iterator[str]:
        number = detail["revision"]
        if number != self.revisions + 1:
            yield f"link {seq}: revisions {self.revisions + 1} to {number - 1} have no link"
        self.revisions = number
        query = select(Revision.__table__).where(Revision.number == number)
        revision = self._session.execute(query).first()
        changed = select(DocumentChange.__table__).where(DocumentChange.revision == number)
        changes = [dict(change._mapping) for change in self._session.execute(changed)]
        digest = revision and revisions.digest_revision(dict(revision._mapping), changes)
        if revision is None or digest != detail["sha256"]:
            yield f"revision {number}: changed or missing (link {seq})"
        elif revision.proposal != (detail.get("proposal") or detail.get("approval")):
            yield f"revision {number}: names another proposal than link {seq}"


def _check_whole(session: Session, walk: _LinkWalk, expected_head: str | None) -> Iterator[str]:
    """Yield problems that need the whole chain; begin it after the walk."""
    if expected_head is not None and expected_head not in walk.heads:
        yield f"the chain does not contain the expected head {expected_head}"
    first_batch = session.execute(select(func.min(StoredBatch.id))).scalar()
    query = select(func.max(batches.Decision.id))
    if first_batch is not None:
        query = query.where(batches.Decision.id < first_batch * NUMBERS)
    last = session.execute(query).scalar() or 0
    if last > walk.legacy:
        yield f"decisions {walk.legacy + 1} to {last} have no link"
    if (latest := revisions.latest_revision(session)) > walk.revisions:
        yield f"revisions {walk.revisions + 1} to {latest} have no link"
    if (last := evidence.latest_number(session)) > walk.evidence:
        yield f"evidence {walk.evidence + 1} to {last} has no link"
    links = select(func.count()).select_from(AuditRecord).where(AuditRecord.action == pools.ACTION)
    rows = select(func.count()).select_from(evidence.DiscardedRun)
    linked, stored = (session.execute(query).scalar_one() for query in (links, rows))
    if linked != stored:
        yield f"{stored} runs are discarded, but {linked} links say so"
    yield from _changed_documents(session, latest)
    yield from _changed_tokens(session)


def _changed_documents(session: Session, latest: int) -> Iterator[str]:
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
            yield f"token {token_id}: no link of the chain created it"
        elif said.pop(token_id) not in (None, digest):
            yield f"token {token_id}: was changed"
        if ended != (token_id in revoked):
            yield f"token {token_id}: is {'' if ended else 'not '}revoked, but its link disagrees"
    yield from (f"token {token_id}: is missing" for token_id in said)


class AuditChain:
    """The audit chain of a database, and what it vouches for."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def verify(self, *, expected_head: str | None = None, full: bool = True) -> ChainBody:
        """Verify the chain and the rows that it covers, and seal what is in order."""
        with suppress(CompatgateError), self._database.writing() as session:
            append_anchor(session)  # so that the head covers what was decided until now
        with self._database.reading() as session:
            verified = verify_chain(session, expected_head=expected_head, full=full)
        if verified.state is not None:
            with suppress(CompatgateError), self._database.writing() as session:
                link, head = verified.report.links, verified.report.head
                detail = {"link": link, "head": head, **msgspec.structs.asdict(verified.state)}
                # without this seal, the next verification reads more
                audit.append(session, "compatgate", SEAL, f"link {link}", detail)
        return verified.report
