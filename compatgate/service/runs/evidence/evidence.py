"""Store evidence, warnings on entries, and which judged runs a person has discarded."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import BigInteger, Boolean, ForeignKey, Index, Text, func, insert, select, update
from sqlalchemy.orm import Mapped, Session, mapped_column

from compatgate.core.binding import Binding, Comparison, SuiteDefinition
from compatgate.core.matrix import Evidence
from compatgate.kit.clock import iso
from compatgate.kit.database.tables import (
    Base,
    BigKey,
    JsonText,
    Page,
    UtcTime,
    narrow,
    page,
    to_plain,
)
from compatgate.service.audit import chain as audit
from compatgate.service.matrix.documents.evidence_schemas import (
    EvidenceBody,
    EvidenceFilters,
    WarningBody,
)
from compatgate.service.matrix.documents.models import Revision

_log = logging.getLogger(__name__)
StateNumbers = tuple[int, int, int]
"""Numbers of the last revision, of the last judged run and of the last discarded run."""
FAILED_BEFORE = "it was changed since the audit log noted it, and it failed: as failed it counts on"
_JUDGED = ("run.passed", "run.failed", "run.imported")
"""Actions of links that vouch for evidence."""
_BINDING = ("content", "bound")
"""Columns with a digest of their own: rows of older versions have none."""
_MEASURED = ("suite", "sku", "driver", "components", "outcome", "finished", "development")
_TOGETHER = 500


class EvidenceRecord(Base):
    """A judged run, bound to what was measured. Rows are only ever added."""

    __tablename__ = "evidence"
    __table_args__ = (
        Index(None, "known_at"),
        Index(None, "suite", "sku", "seq"),
        Index(None, "content"),
    )

    seq: Mapped[int] = mapped_column(
        BigKey, primary_key=True, autoincrement=False, comment="1, 2, 3, ... without gaps"
    )
    run: Mapped[str] = mapped_column(ForeignKey("runs.id"), unique=True)
    suite: Mapped[str] = mapped_column(Text)
    sku: Mapped[str] = mapped_column(Text)
    driver: Mapped[str] = mapped_column(Text, comment="Measured")
    components: Mapped[dict[str, str]] = mapped_column(
        JsonText, comment="JSON: component to version measured"
    )
    outcome: Mapped[str] = mapped_column(Text)
    finished: Mapped[int] = mapped_column(BigInteger, comment="Seconds since the epoch")
    development: Mapped[bool] = mapped_column(Boolean, comment="Ran outside a container")
    known_at: Mapped[datetime] = mapped_column(
        UtcTime, comment="Never before that of the previous row"
    )
    content: Mapped[str | None] = mapped_column(
        Text, comment="Digest of the GPU content; null: unknown"
    )
    bound: Mapped[dict[str, Any] | None] = mapped_column(
        JsonText, comment="JSON: what the run was bound to; null: before 0012"
    )


class EntryWarning(Base):
    """A warning that a run contradicts a blessed entry; a passed run closes it."""

    __tablename__ = "entry_warnings"
    __table_args__ = (Index(None, "entry", "closed_at"), Index(None, "closed_at"))

    id: Mapped[int] = mapped_column(BigKey, primary_key=True)
    entry: Mapped[str] = mapped_column(Text)
    run: Mapped[str] = mapped_column(ForeignKey("runs.id"), comment="That opened it")
    suite: Mapped[str] = mapped_column(Text)
    sku: Mapped[str] = mapped_column(Text)
    driver: Mapped[str] = mapped_column(Text)
    message: Mapped[str] = mapped_column(Text)
    opened_at: Mapped[datetime] = mapped_column(UtcTime)
    closed_at: Mapped[datetime | None] = mapped_column(UtcTime, comment="Null: it is open")
    closed_by: Mapped[str | None] = mapped_column(Text, comment="Id of the run that passed")


class DiscardedRun(Base):
    """A judged run that a person has discarded. Rows are only ever added."""

    __tablename__ = "discarded_runs"

    seq: Mapped[int] = mapped_column(BigKey, primary_key=True, autoincrement=False)
    run: Mapped[str] = mapped_column(ForeignKey("runs.id"), unique=True)
    discarded_by: Mapped[str] = mapped_column(Text)
    reason: Mapped[str] = mapped_column(Text)
    discarded_at: Mapped[datetime] = mapped_column(UtcTime)

    @property
    def fingerprint(self) -> str:
        """Return the digest by which the audit chain vouches for the row."""
        row = [self.run, self.discarded_by, self.reason, iso(self.discarded_at)]
        return audit.digest_rows([row])

    def to_json(self) -> dict[str, str]:
        """Return who discarded the run, when and why, as plain data."""
        return {"by": self.discarded_by, "reason": self.reason, "at": iso(self.discarded_at)}


class EvidenceRow(EvidenceBody, frozen=True):
    """A stored row of evidence; the audit chain digests its binding as it was stored."""

    bound: dict[str, Any] | None  # type: ignore[assignment]

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return to_plain(self)


class WarningRow(WarningBody, frozen=True):
    """A stored warning; open while ``closed_at`` is None."""

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return to_plain(self)


_EVIDENCE_COLUMNS = [getattr(EvidenceRecord, name) for name in EvidenceRow.__struct_fields__]

_WARNING_COLUMNS = [getattr(EntryWarning, name) for name in WarningRow.__struct_fields__]


def latest_number(session: Session) -> int:
    """Return the number of the last row; 0 before the first."""
    return session.execute(select(func.max(EvidenceRecord.seq))).scalar() or 0


def latest_state(session: Session) -> StateNumbers:
    """Return the numbers of what answers rest on, in one query."""
    last = (Revision.number, EvidenceRecord.seq, DiscardedRun.seq)
    queries = (select(func.max(column)).scalar_subquery() for column in last)
    result = session.execute(select(*queries)).one()
    return result[0] or 0, result[1] or 0, result[2] or 0


def add_evidence(session: Session, run: Evidence, at: datetime) -> EvidenceRow:
    """Store a judged run, in a writing session."""
    query = select(EvidenceRecord.seq, EvidenceRecord.known_at)
    last = session.execute(query.order_by(EvidenceRecord.seq.desc()).limit(1)).first()
    values = run.to_text()
    values |= {
        "seq": last.seq + 1 if last else 1,
        "run": values.pop("id"),
        "known_at": max(at, last.known_at) if last else at,
        "content": run.content,
        "bound": run.bound.to_json() if run.bound else None,
    }
    session.execute(insert(EvidenceRecord), [values])
    return EvidenceRow(**values)


def find_comparisons(session: Session, run_ids: Collection[str]) -> dict[str, Comparison]:
    """Return what pairs found, of those runs that were judged in pairs."""
    query = select(EvidenceRecord.run, EvidenceRecord.bound).where(EvidenceRecord.run.in_(run_ids))
    results = {}
    for run_id, bound in session.execute(query):
        if bound and (compared := msgspec.convert(bound, Binding).compared):
            results[run_id] = compared
    return results


def fingerprint(row: EvidenceRow) -> str:
    """Return the digest by which the audit chain vouches for a row, without its binding."""
    body = row.to_json()
    return audit.digest_rows([{name: body[name] for name in body if name not in _BINDING}])


def binding_fingerprint(row: EvidenceRow) -> str | None:
    """Return the digest by which the audit chain vouches for a row's binding; None: none."""
    return audit.digest_rows([[row.content, row.bound]]) if row.bound is not None else None


def load_evidence(
    session: Session,
    *,
    after: int = 0,
    until: int | None = None,
    suites: Collection[str] | None = None,
    skus: Collection[str] | None = None,
    new: str = "",
) -> Iterator[Evidence]:
    """Load judged runs in the order of their numbers.

    A row that is not as the audit chain says does not count, and the log says so. Where the chain
    says that the run failed, it counts as failed, so that no edit takes a failure away. The link of
    the ``new`` run is added later in this transaction.
    """
    query = select(*_EVIDENCE_COLUMNS).where(EvidenceRecord.seq > after)
    query = query.where(EvidenceRecord.seq <= until) if until is not None else query
    query = query.where(EvidenceRecord.suite.in_(suites)) if suites is not None else query
    query = query.where(EvidenceRecord.sku.in_(skus)) if skus is not None else query
    found = session.execute(query.order_by(EvidenceRecord.seq)).all()
    rows = [_row(one) for one in found]
    for start in range(0, len(rows), _TOGETHER):
        some = rows[start : start + _TOGETHER]
        changed = find_changed(session, [row for row in some if row.run != new])
        for row in some:
            if row.run in changed:
                why = changed[row.run]
                _log.error("evidence %d of run %s does not count: %s", row.seq, row.run, why)
                if why != FAILED_BEFORE:
                    continue
                row = msgspec.structs.replace(row, outcome="failed")
            stored = {name: getattr(row, name) for name in _MEASURED}
            bound = msgspec.convert(row.bound, Binding) if row.bound is not None else None
            yield Evidence.read(id=row.run, bound=bound, **stored)


def find_changed(session: Session, rows: Sequence[EvidenceRow]) -> dict[str, str]:
    """Return the runs whose evidence is not as the audit chain says, each with the reason."""
    links = audit.read_links(session, [row.run for row in rows], _JUDGED)
    vouched = {
        run: ((detail["evidence"], detail["sha256"], detail.get("bound")), action, detail)
        for run, action, detail in links
        if "evidence" in detail
    }
    changed = {}
    for row in rows:
        if row.run not in vouched:
            changed[row.run] = "the audit log has no link about it: another person wrote it"
            continue
        told, action, detail = vouched[row.run]
        if told != (row.seq, fingerprint(row), binding_fingerprint(row)):
            failed = "failed" in (action.removeprefix("run."), detail.get("outcome"))
            changed[row.run] = (
                FAILED_BEFORE if failed else "it was changed since the audit log noted it"
            )
    return changed


def _define() -> Mapping[str, SuiteDefinition]:
    from compatgate.canary.workloads.library import define_suites  # not for every question

    return define_suites()


class StoredEvidence:
    """The evidence of one database that counts, as `EvidenceSource` describes it."""

    latest_state = staticmethod(latest_state)

    def __init__(self, define: Callable[[], Mapping[str, SuiteDefinition]] = _define) -> None:
        self.suites = define

    def state_at(self, session: Session, moment: datetime) -> tuple[int, int]:
        """Return the numbers of the last run and discard before a moment."""
        query = select(func.max(EvidenceRecord.seq)).where(EvidenceRecord.known_at <= moment)
        return session.execute(query).scalar() or 0, latest_discard(session, until=moment)

    def read(
        self, session: Session, *, after: int = 0, until: int | None = None, discarded: int | None
    ) -> Iterator[Evidence]:
        """Yield the runs that count, oldest first."""
        left_out = load_discarded(session, until=discarded)
        for run in load_evidence(session, after=after, until=until):
            if run.id not in left_out:
                yield run


def list_evidence(session: Session, /, **filters: Any) -> Page[EvidenceRow]:
    """List evidence, newest first, by `EvidenceFilters`; these limit the time of storage."""
    asked = EvidenceFilters(**filters)
    names = ("suite", "sku", "run", "outcome", "content")
    equal = {getattr(EvidenceRecord, name): getattr(asked, name) for name in names}
    query, at = select(*_EVIDENCE_COLUMNS), EvidenceRecord.known_at
    query = narrow(query, equal, at=at, since=asked.since, until=asked.until)
    key = EvidenceRecord.seq
    return page(session, query, key, _row, cursor=asked.cursor, limit=asked.limit, descending=True)


def iter_rows(session: Session) -> Iterator[EvidenceRow]:
    """Yield every row, in order."""
    query = select(*_EVIDENCE_COLUMNS).order_by(EvidenceRecord.seq)
    for result in session.execute(query.execution_options(yield_per=1000)):
        yield _row(result)


def _row(found: Any) -> EvidenceRow:
    return EvidenceRow(**found._mapping)


def latest_discard(session: Session, *, until: datetime | None = None) -> int:
    """Return the number of the last row, perhaps as of a moment; 0 before the first."""
    query = select(func.max(DiscardedRun.seq))
    query = query.where(DiscardedRun.discarded_at <= until) if until is not None else query
    return session.execute(query).scalar() or 0


def add_discard(session: Session, run: str, *, by: str, reason: str, at: datetime) -> DiscardedRun:
    """Store that a run was discarded, in a writing session."""
    seq = latest_discard(session) + 1
    row = DiscardedRun(seq=seq, run=run, discarded_by=by, reason=reason, discarded_at=at)
    session.add(row)
    return row


def find_discards(session: Session, runs: Iterable[str]) -> dict[str, DiscardedRun]:
    """Return the discards of some runs, by the run's id."""
    query = select(DiscardedRun).where(DiscardedRun.run.in_(list(runs)))
    return {row.run: row for row in session.scalars(query)}


def load_discarded(session: Session, *, until: int | None = None) -> Collection[str]:
    """Return the ids of the discarded runs; ``until``: number of the last row that counts."""
    query = select(DiscardedRun.run)
    query = query.where(DiscardedRun.seq <= until) if until is not None else query
    return frozenset(session.execute(query).scalars())


def open_warnings(
    session: Session,
    *,
    entries: Collection[str] | None = None,
    suite: str | None = None,
    sku: str | None = None,
) -> list[WarningRow]:
    """Return open warnings, oldest first."""
    query = select(*_WARNING_COLUMNS).where(EntryWarning.closed_at.is_(None))
    query = narrow(query, {EntryWarning.suite: suite, EntryWarning.sku: sku})
    query = query.where(EntryWarning.entry.in_(entries)) if entries is not None else query
    return [WarningRow(*result) for result in session.execute(query.order_by(EntryWarning.id))]


def close_warnings(session: Session, ids: Collection[int], run: str, at: datetime) -> None:
    """Close warnings after a passed run."""
    changed = update(EntryWarning).where(EntryWarning.id.in_(ids))
    session.execute(changed.values(closed_at=at, closed_by=run))
