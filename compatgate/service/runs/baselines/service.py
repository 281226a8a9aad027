"""Learn baselines from passed runs, show them, and let people approve them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import convert, to_builtins
from msgspec.structs import replace
from sqlalchemy.orm import Session

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
from compatgate.errors import BadInput
from compatgate.kit import clock
from compatgate.kit.database.database import Database, in_reading
from compatgate.service.audit.events import repository as audit
from compatgate.service.runs.baselines import repository as baselines
from compatgate.service.runs.baselines.repository import BaselineRow, Key
from compatgate.service.runs.baselines.schemas import BaselineDetailBody, NearestBody

_LEARNED = ("better", "tolerance", "runs", "discarded", "source", "explained")


class BaselineService:
    """The baselines of one database; `Baselines` for the engine."""

    list = in_reading(baselines.list_baselines)
    find = in_reading(baselines.find_baseline)
    approved_before = in_reading(baselines.approved_before)

    def __init__(self, database: Database) -> None:
        self._database = database

    def approved(self, ground: BaselineKey) -> Mapping[str, Samples]:
        """See `Baselines`."""
        with self._database.reading() as session:
            key = {"workload": ground.workload, "sku": ground.sku, "family": ground.family}
            found = baselines.approved_baselines(session, **key)
            oldest = baselines.oldest_baselines(session, **key)
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
            return _describe(session, baselines.find_baseline(session, number))

    def approve(self, number: int, *, by: str) -> BaselineDetailBody:
        """Approve a proposed version for future runs."""
        with self._database.writing() as session:
            row = baselines.find_baseline(session, number)
            learned = row.learned
            if learned.thin:
                raise BadInput(
                    f"the baseline {number} was learned from {len(learned.runs)} runs, "
                    f"{RELIABLE_RUNS} are needed to know how far runs differ",
                    field="baseline",
                    value=number,
                    hint="run the suite again: each sound run adds to the proposed version",
                )
            baselines.approve_version(session, row, by=by, at=clock.now())
            _audit(session, row, "approve", by)
            return _describe(session, row)

    def refuse(self, number: int, *, by: str) -> BaselineDetailBody:
        """Refuse a proposed version, or retire an approved one; the next is learned without it."""
        with self._database.writing() as session:
            row = baselines.find_baseline(session, number)
            baselines.refuse_version(row, by=by, at=clock.now())
            _audit(session, row, "refuse", by)
            return _describe(session, row)


def _audit(session: Session, row: BaselineRow, what: str, by: str) -> None:
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
    last = baselines.latest_version(session, key)
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
    baselines.propose_version(session, key, msgspec.to_builtins(learned), by=run, at=clock.now())


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
    approved = baselines.approved_baselines(
        session, workload=last.workload, sku=last.sku, family=last.family
    )
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
    own = baselines.approved_baselines(
        session, workload=row.workload, sku=row.sku, family=row.family
    )
    if row.metric in own:
        return None
    known = baselines.approved_by_family(session, row.key)
    family = find_nearest_family(row.family, known)
    if family is None:
        return None
    other = known[family]
    factor = find_conversion(other.unit, row.unit)
    if factor is None:
        return None
    theirs = describe_distribution(other.learned).median * factor
    return NearestBody(other.id, family, theirs, median / theirs - 1 if theirs else None)
