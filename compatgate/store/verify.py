"""Checking the audit chain, and everything that it vouches for, against what is stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Struct
from sqlalchemy import select
from sqlalchemy.orm import Session

from compatgate.core.digest import sha256
from compatgate.documents.specs import KINDS, encode, key_of
from compatgate.store import audit, decisions, documents, evidence, revisions
from compatgate.store.models import AuditRecord, Change, Decision, Revision, Verdict

_ENOUGH = 100
"""Problems after which looking further tells nothing new."""


class ChainReport(Struct, frozen=True):
    """What a verification found.

    Attributes:
        links: of the chain.
        decisions: that the chain vouches for.
        revisions: likewise.
        evidence: likewise.
        head: hash of the last link; note it elsewhere to notice a chain that was cut short.
        problems: what does not fit, in words; empty: the chain holds.
    """

    links: int
    decisions: int
    revisions: int
    evidence: int
    head: str
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether everything fits."""
        return not self.problems

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {"ok": self.ok, **msgspec.structs.asdict(self), "problems": list(self.problems)}


def verify_chain(session: Session, *, expected_head: str | None = None) -> ChainReport:
    """Recompute every hash, and compare revisions, decisions, verdicts and the current matrix.

    Args:
        session: to read from; one moment of the database is checked.
        expected_head: a head noted earlier, which must still be in the chain.
    """
    walk = _Walk(session)
    problems = []
    for problem in (*walk.problems(), *_rest(session, walk, expected_head)):
        problems.append(problem)
        if len(problems) >= _ENOUGH:
            break
    counts = (walk.seq, walk.decisions, walk.revisions, walk.evidence)
    return ChainReport(*counts, walk.head, tuple(problems))


class _Walk:
    """One pass over the chain, from its first link."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.seq = 0
        self.head = audit.GENESIS
        self.heads: set[str] = {audit.GENESIS}
        self.decisions = 0
        self.revisions = 0
        self.evidence = 0
        self._judged = evidence.rows(session)
        self._lines = decisions.stored_lines(session)
        self._next = next(self._lines, None)

    def problems(self) -> Iterator[str]:
        query = select(AuditRecord.__table__).order_by(AuditRecord.seq)
        for row in self._session.execute(query.execution_options(yield_per=1000)):
            link = dict(row._mapping)
            yield from self._link(link)
            self.seq, self.head = link["seq"], link["hash"]
            self.heads.add(self.head)

    def _link(self, link: dict[str, Any]) -> Iterator[str]:
        seq = link["seq"]
        if seq != self.seq + 1:
            yield f"link {seq}: links {self.seq + 1} to {seq - 1} are missing"
        elif link["previous"] != self.head:
            yield f"link {seq}: does not continue link {self.seq}"
        if audit.hash_of(link) != link["hash"]:
            yield f"link {seq}: was changed after it was written"
            return
        detail = msgspec.json.decode(link["detail"])
        if link["action"] == "decisions":
            yield from self._decisions(seq, detail)
        elif link["action"].startswith("matrix."):
            yield from self._revision(seq, detail)
        elif link["action"].startswith("run.") and "evidence" in detail:
            yield from self._evidence(seq, detail)

    def _decisions(self, seq: int, detail: dict[str, Any]) -> Iterator[str]:
        first, count = detail["first"], detail["count"]
        if first != self.decisions + 1:
            yield f"link {seq}: decisions {self.decisions + 1} to {first - 1} have no link"
        self.decisions = first + count - 1
        lines = self._take_decisions(self.decisions)
        found = sha256(decisions.encode_lines(lines))
        if len(lines) != count or found != detail["sha256"]:
            yield f"decisions {first} to {self.decisions}: changed or missing (link {seq})"
        for verdict_id, digest in detail.get("verdicts", {}).items():
            body = self._session.execute(select(Verdict.body).where(Verdict.id == verdict_id))
            if sha256((body.scalar() or "").encode()) != digest:
                yield f"verdict {verdict_id}: changed or missing (link {seq})"

    def _take_decisions(self, last: int) -> list[list[Any]]:
        """The next stored decisions, up to a number."""
        taken = []
        while self._next is not None and self._next[0] <= last:
            taken.append(self._next)
            self._next = next(self._lines, None)
        return taken

    def _evidence(self, seq: int, detail: dict[str, Any]) -> Iterator[str]:
        self.evidence += 1
        row = next(self._judged, None)
        if row is None or (row.seq, evidence.fingerprint(row)) != (
            detail["evidence"],
            detail["sha256"],
        ):
            yield f"evidence {detail['evidence']}: changed or missing (link {seq})"

    def _revision(self, seq: int, detail: dict[str, Any]) -> Iterator[str]:
        number = detail["revision"]
        if number != self.revisions + 1:
            yield f"link {seq}: revisions {self.revisions + 1} to {number - 1} have no link"
        self.revisions = number
        query = select(Revision.__table__).where(Revision.number == number)
        revision = self._session.execute(query).first()
        changes = self._session.execute(
            select(Change.__table__).where(Change.revision == number)
        ).all()
        found = [dict(change._mapping) for change in changes]
        if (
            revision is None
            or revisions.fingerprint(dict(revision._mapping), found) != detail["sha256"]
        ):
            yield f"revision {number}: changed or missing (link {seq})"


def _rest(session: Session, walk: _Walk, expected_head: str | None) -> Iterable[str]:
    """What only the whole chain can tell; runs after the walk."""
    if expected_head is not None and expected_head not in walk.heads:
        yield f"the chain does not hold the expected head {expected_head}"
    last = session.execute(select(Decision.id).order_by(Decision.id.desc()).limit(1)).scalar()
    if (last or 0) > walk.decisions:
        yield f"decisions {walk.decisions + 1} to {last} have no link"
    if (latest := revisions.latest(session)) > walk.revisions:
        yield f"revisions {walk.revisions + 1} to {latest} have no link"
    if (last := evidence.latest(session)) > walk.evidence:
        yield f"evidence {walk.evidence + 1} to {last} has no link"
    yield from _current(session, latest)


def _current(session: Session, latest: int) -> Iterator[str]:
    """Documents that are not what their last revision made them."""
    history = {
        key_of(document): (encode(document), revision)
        for document, revision in revisions.documents_at(session, latest)
    }
    for kind in KINDS:
        for document, revision in documents.load(session, kind):
            key = key_of(document)
            if history.pop(key, None) != (encode(document), revision):
                yield f"{kind} {key[1]}: is not what its last revision says"
    for kind, name in history:
        yield f"{kind} {name}: is missing, and no revision deleted it"
