"""Learn the expected distributions of metrics from passed runs, in versions that people approve."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import convert, to_builtins
from msgspec.structs import replace
from sqlalchemy import Index, Integer, Text, UniqueConstraint, and_, select, update
from sqlalchemy.orm import Mapped, Session, aliased, mapped_column

from compatgate.canary.engine import BaselineKey
from compatgate.canary.judge.baseline import (
    RELIABLE_RUNS,
    Baseline,
    describe_distribution,
    find_nearest_family,
    learn,
)
from compatgate.canary.judge.prepare import find_conversion
from compatgate.canary.judge.result import Samples
from compatgate.canary.workload import MetricSpec
from compatgate.errors import BadInput, Conflict, NotFound
from compatgate.kit import clock
from compatgate.kit.database.database import Database, in_reading
from compatgate.kit.database.tables import (
    DEFAULT_LIMIT,
    Base,
    BigKey,
    JsonText,
    Page,
    UtcTime,
    narrow,
    page,
)
from compatgate.service.audit import chain as audit
from compatgate.service.runs.evidence.schemas import BaselineDetailBody, NearestBody

Key = tuple[str, str, str, str]
"""Workload, SKU, stack family, metric."""
_KEY = ("workload", "sku", "family", "metric")
_LEARNED = ("better", "tolerance", "runs", "discarded", "source", "explained")


class BaselineRow(Base):
    """A version of a metric's expected distribution, for a workload, a SKU and a stack family."""

    __tablename__ = "baselines"
    __table_args__ = (
        UniqueConstraint("workload", "sku", "family", "metric", "version"),
        Index(None, "state", "id"),
    )

    id: Mapped[int] = mapped_column(BigKey, primary_key=True)
    workload: Mapped[str] = mapped_column(Text)
    sku: Mapped[str] = mapped_column(Text)
    family: Mapped[str] = mapped_column(Text, comment="Of the stack")
    metric: Mapped[str] = mapped_column(Text)
    version: Mapped[int] = mapped_column(Integer, comment="1, 2, ... for each metric")
    state: Mapped[str] = mapped_column(Text, comment="proposed, approved, replaced or refused")
    body: Mapped[dict[str, Any]] = mapped_column(
        JsonText, comment="The distribution, as the judge reads it"
    )
    proposed_at: Mapped[datetime] = mapped_column(UtcTime)
    proposed_by: Mapped[str] = mapped_column(Text)
    decided_at: Mapped[datetime | None] = mapped_column(UtcTime)
    decided_by: Mapped[str | None] = mapped_column(Text)

    @property
    def key(self) -> Key:
        """Return what this is a version of."""
        return self.workload, self.sku, self.family, self.metric

    @property
    def learned(self) -> Baseline:
        """Return the distribution, as the judge takes it."""
        return msgspec.convert(self.body, Baseline)

    @property
    def unit(self) -> str:
        """Return the unit of the values."""
        return str(self.body["unit"])

    @property
    def learnt_from(self) -> int:
        """Return the number of runs."""
        return len(self.body["runs"])

    @property
    def values(self) -> int:
        """Return the number of values."""
        return sum(len(run["values"]) for run in self.body["runs"])


def latest_version(session: Session, key: Key) -> BaselineRow | None:
    """Return the last version of a metric's baseline, in any state."""
    query = select(BaselineRow).filter_by(**dict(zip(_KEY, key, strict=True)))
    return session.scalars(query.order_by(BaselineRow.version.desc()).limit(1)).first()


def approved_baselines(
    session: Session, *, workload: str, sku: str, family: str
) -> dict[str, BaselineRow]:
    """Return the approved baselines of a workload, SKU and family, by metric."""
    query = select(BaselineRow).filter_by(workload=workload, sku=sku, family=family)
    approved = query.where(BaselineRow.state == "approved")
    return {row.metric: row for row in session.scalars(approved)}


def approved_before(session: Session, numbers: Collection[int]) -> dict[int, BaselineRow]:
    """Return the other approved version of the metric of each version, by the version's id."""
    mine = aliased(BaselineRow)
    same = and_(*(getattr(mine, name) == getattr(BaselineRow, name) for name in _KEY))
    query = select(mine.id, BaselineRow).join(BaselineRow, same)
    query = query.where(mine.id.in_(numbers), BaselineRow.state == "approved")
    found: Any = session.execute(query.where(BaselineRow.id != mine.id))
    return dict(found.all())


def propose_version(
    session: Session, key: Key, body: dict[str, Any], *, by: str, at: datetime
) -> None:
    """Propose a version, or renew the proposed one; a run or a user proposes."""
    row = latest_version(session, key)
    if row is None or row.state != "proposed":
        version = row.version + 1 if row else 1
        row = BaselineRow(**dict(zip(_KEY, key, strict=True)), version=version, state="proposed")
        session.add(row)
    row.body, row.proposed_at, row.proposed_by = body, at, by
    session.flush()


def find_baseline(session: Session, number: int) -> BaselineRow:
    """Return a baseline by its id."""
    row = session.get(BaselineRow, number)
    if row is None:
        hint = "compatgate canary baselines list shows every baseline"
        what = f"baseline {number} does not exist"
        raise NotFound(what, field="baseline", value=number, hint=hint)
    return row


def list_baselines(
    session: Session, /, *, cursor: str | None = None, limit: int = DEFAULT_LIMIT, **filters: Any
) -> Page[BaselineRow]:
    """Return versions of baselines, newest first; a filter is named as its column."""
    query = narrow(
        select(BaselineRow), {getattr(BaselineRow, name): filters[name] for name in filters}
    )
    return page(session, query, BaselineRow.id, cursor=cursor, limit=limit, descending=True)


class BaselineService:
    """The baselines of one database; `Baselines` for the engine."""

    list = in_reading(list_baselines)
    find = in_reading(find_baseline)
    approved_before = in_reading(approved_before)

    def __init__(self, database: Database) -> None:
        self._database = database

    def approved(self, ground: BaselineKey) -> Mapping[str, Samples]:
        """See `Baselines`."""
        with self._database.reading() as session:
            key = {"workload": ground.workload, "sku": ground.sku, "family": ground.family}
            found = approved_baselines(session, **key)
            accepted = BaselineRow.state.in_(("approved", "replaced"))  # and not refused since
            query = select(BaselineRow).filter_by(**key).where(accepted)
            newest_first = session.scalars(query.order_by(BaselineRow.version.desc()))
            oldest = {row.metric: row for row in newest_first}
        return {
            metric: replace(row.learned.samples, oldest=oldest[metric].learned.samples.runs)
            for metric, row in found.items()
            if not row.learned.thin
        }

    def offer(
        self,
        ground: BaselineKey,
        metrics: Mapping[str, MetricSpec],
        run: str,
        found: Sequence[Samples],
    ) -> None:
        """Propose a version with the known values and the run's; see `Baselines`."""
        known = [samples for samples in found if samples.name in metrics]
        if not known:
            return
        with self._database.writing() as session:
            for samples in known:
                _propose_metric(session, ground, metrics[samples.name], run, samples)

    def show(self, number: int) -> BaselineDetailBody:
        """Return a version with its distribution."""
        with self._database.reading() as session:
            return _describe(session, find_baseline(session, number))

    def approve(self, number: int, *, by: str) -> BaselineDetailBody:
        """Approve a proposed version for future runs."""
        with self._database.writing() as session:
            row = find_baseline(session, number)
            learned = row.learned
            if learned.thin:
                raise BadInput(
                    f"the baseline {number} was learned from {len(learned.runs)} runs, "
                    f"{RELIABLE_RUNS} are needed to know how far runs differ",
                    field="baseline",
                    value=number,
                    hint="run the suite again: each sound run adds to the proposed version",
                )
            if row.state != "proposed":
                by_whom = f" by {row.decided_by}" if row.decided_by else ""
                what = f"the baseline {row.id} is {row.state}{by_whom}"
                raise Conflict(what, field="baseline", value=row.id)
            same = dict(zip(_KEY, row.key, strict=True))
            former = update(BaselineRow).filter_by(**same, state="approved")
            session.execute(former.values(state="replaced"))
            _decide(session, row, "approve", "approved", by)
            return _describe(session, row)

    def refuse(self, number: int, *, by: str) -> BaselineDetailBody:
        """Refuse a proposed version, or retire an approved one; the next is learned without it."""
        with self._database.writing() as session:
            row = find_baseline(session, number)
            if row.state == "refused":
                what = f"the baseline {row.id} is {row.state}"
                raise Conflict(what, field="baseline", value=row.id)
            _decide(session, row, "refuse", "refused", by)
            return _describe(session, row)


def _decide(session: Session, row: BaselineRow, what: str, state: str, by: str) -> None:
    row.state, row.decided_by, row.decided_at = state, by, clock.now()
    audit.append(
        session,
        at=clock.now(),
        actor=by,
        action=f"baseline.{what}",
        subject=f"{row.workload} {row.metric} on {row.sku}",
        detail={"id": row.id, "version": row.version, "family": row.family},
    )


def _propose_metric(
    session: Session, ground: BaselineKey, spec: MetricSpec, run: str, samples: Samples
) -> None:
    key: Key = (ground.workload, ground.sku, ground.family, samples.name)
    last = latest_version(session, key)
    if last is not None:
        learned = last.learned
        if run in {*(one.run for one in learned.runs), *(one.run for one in learned.discarded)}:
            return
    base = _learning_base(session, last, samples.explained) if last else None
    # Samples only start a baseline: from the first own run on, own runs make it.
    own = [run for run in base.runs if run.sample is None] if base else []
    accepted = [(r.run, Samples(samples.name, spec.unit, (r.values,))) for r in own]
    version = 1 if last is None else last.version + (last.state != "proposed")
    try:
        learned = learn(*key, spec, [*accepted, (run, samples)], version=version)
    except BadInput:
        return  # it gives nothing to learn from: too few values, or none that are numbers
    explained = samples.explained or (base.explained if base else "")
    learned = replace(learned, explained=explained)
    propose_version(session, key, msgspec.to_builtins(learned), by=run, at=clock.now())


def _learning_base(session: Session, last: BaselineRow, explained: str) -> Baseline | None:
    """Return the version whose runs a new version is learned from, with the current run.

    Improbably good values, which a person explained, are learned from each other only: they replace
    the values before them. Nothing is learned of a version that was refused.
    """
    learned = last.learned
    if explained:
        return learned if learned.explained and last.state != "refused" else None
    if last.state != "refused":
        return learned
    approved = approved_baselines(session, workload=last.workload, sku=last.sku, family=last.family)
    return approved[last.metric].learned if last.metric in approved else None


def _describe(session: Session, row: BaselineRow) -> BaselineDetailBody:
    names = BaselineDetailBody.__struct_fields__
    body = {name: getattr(row, name) for name in names if hasattr(row, name)}
    learned = row.learned
    figures = describe_distribution(learned)
    body |= {name: msgspec.to_builtins(learned)[name] for name in _LEARNED}
    body |= {
        "distribution": to_builtins(figures),
        "nearest": _find_nearest(session, row, figures.median),
    }
    return convert(body, BaselineDetailBody)


def _find_nearest(session: Session, row: BaselineRow, median: float) -> NearestBody | None:
    """Return the most similar family's approved baseline, if no version of this is approved."""
    own = approved_baselines(session, workload=row.workload, sku=row.sku, family=row.family)
    if row.metric in own:
        return None
    same_metric = {"workload": row.workload, "sku": row.sku, "metric": row.metric}
    query = select(BaselineRow).filter_by(**same_metric, state="approved")
    known = {other.family: other for other in session.scalars(query)}
    family = find_nearest_family(row.family, known)
    if family is None:
        return None
    other = known[family]
    factor = find_conversion(other.unit, row.unit)
    if factor is None:
        return None
    theirs = describe_distribution(other.learned).median * factor
    return NearestBody(other.id, family, theirs, median / theirs - 1 if theirs else None)
