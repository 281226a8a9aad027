"""Evidence: numbered, only ever added."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import func, insert, select
from sqlalchemy.orm import Session

from compatgate.core.matrix import Evidence
from compatgate.core.versions import parse_version
from compatgate.store import audit
from compatgate.store.models import EvidenceRecord, Revision
from compatgate.store.paging import DEFAULT, Page, page
from compatgate.store.run_rows import EvidenceRow

_COLUMNS = [getattr(EvidenceRecord, name) for name in EvidenceRow.__struct_fields__]
_encode = msgspec.json.Encoder(order="deterministic").encode


def latest(session: Session) -> int:
    """Number of the last row; 0 before the first."""
    return session.execute(select(func.max(EvidenceRecord.seq))).scalar() or 0


def with_revision(session: Session) -> tuple[int, int]:
    """Number of the last revision and of the last row here, in one question."""
    revision = select(func.max(Revision.number)).scalar_subquery()
    number = select(func.max(EvidenceRecord.seq)).scalar_subquery()
    found = session.execute(select(revision, number)).one()
    return found[0] or 0, found[1] or 0


def latest_at(session: Session, when: datetime) -> int:
    """Number of the last row that was known at a moment."""
    query = select(func.max(EvidenceRecord.seq)).where(EvidenceRecord.known_at <= when)
    return session.execute(query).scalar() or 0


def add(session: Session, run: Evidence, at: datetime) -> EvidenceRow:
    """Keep a judged run; the session must be a writing one."""
    query = select(EvidenceRecord.seq, EvidenceRecord.known_at)
    last = session.execute(query.order_by(EvidenceRecord.seq.desc()).limit(1)).first()
    components = {name: version.text for name, version in run.components.items()}
    values = {
        "seq": last.seq + 1 if last else 1,
        "run": run.id,
        "suite": run.suite,
        "sku": run.sku,
        "driver": run.driver.text,
        "components": _encode(components).decode(),
        "outcome": run.outcome,
        "finished": run.finished,
        "development": run.development,
        "known_at": max(at, last.known_at) if last else at,
    }
    session.execute(insert(EvidenceRecord), [values])
    return _row_of({**values, "components": components})


def fingerprint(row: EvidenceRow) -> str:
    """The digest by which the audit chain vouches for a row."""
    return audit.digest_rows([row.to_json()])


def load(
    session: Session,
    *,
    after: int = 0,
    until: int | None = None,
    suites: Collection[str] | None = None,
    skus: Collection[str] | None = None,
) -> Iterator[Evidence]:
    """Judged runs in the order in which they became known.

    Args:
        session: to read from.
        after: number of the last row that is known already.
        until: number of the last row wanted.
        suites: only these.
        skus: only on these.
    """
    query = select(*_COLUMNS).where(EvidenceRecord.seq > after)
    query = query.where(EvidenceRecord.seq <= until) if until is not None else query
    query = query.where(EvidenceRecord.suite.in_(suites)) if suites is not None else query
    query = query.where(EvidenceRecord.sku.in_(skus)) if skus is not None else query
    query = query.order_by(EvidenceRecord.seq)
    for found in session.execute(query.execution_options(yield_per=5000)):
        yield to_evidence(_row(found))


def to_evidence(row: EvidenceRow) -> Evidence:
    """A stored row as the rules read it."""
    return Evidence(
        row.run,
        row.suite,
        row.sku,
        parse_version("driver", row.driver),
        {name: parse_version(name, text) for name, text in row.components.items()},
        row.outcome,  # type: ignore[arg-type]
        row.finished,
        row.development,
    )


def list_evidence(
    session: Session,
    *,
    suite: str | None = None,
    sku: str | None = None,
    run: str | None = None,
    outcome: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    cursor: str | None = None,
    limit: int = DEFAULT,
) -> Page[EvidenceRow]:
    """Evidence, newest first; ``since`` and ``until`` are when it became known."""
    query = select(*_COLUMNS)
    wanted = (
        (EvidenceRecord.suite, suite),
        (EvidenceRecord.sku, sku),
        (EvidenceRecord.run, run),
        (EvidenceRecord.outcome, outcome),
    )
    for column, value in wanted:
        query = query.where(column == value) if value else query
    query = query.where(EvidenceRecord.known_at >= since) if since else query
    query = query.where(EvidenceRecord.known_at <= until) if until else query
    key = EvidenceRecord.seq
    return page(session, query, key, _row, cursor=cursor, limit=limit, descending=True)


def rows(session: Session) -> Iterator[EvidenceRow]:
    """Every row, in order."""
    query = select(*_COLUMNS).order_by(EvidenceRecord.seq)
    for found in session.execute(query.execution_options(yield_per=1000)):
        yield _row(found)


def _row(found: Any) -> EvidenceRow:
    values = dict(found._mapping)
    return _row_of({**values, "components": msgspec.json.decode(values["components"])})


def _row_of(values: dict[str, Any]) -> EvidenceRow:
    return EvidenceRow(**values)
