"""Learn baselines from passed runs, show them, and let people approve them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy.orm import Session

from compatgate.canary.engine.interface import BaselineKey
from compatgate.canary.judge.baseline import (
    Baseline,
    Distribution,
    describe_distribution,
    find_nearest_family,
    learn,
)
from compatgate.canary.judge.prepare import find_conversion
from compatgate.canary.judge.result import Samples
from compatgate.canary.workload import MetricSpec
from compatgate.errors import BadInput
from compatgate.kit import clock
from compatgate.kit.database.database import Database
from compatgate.kit.database.tables import Page
from compatgate.service.audit import repository as audit
from compatgate.service.baselines import repository as baselines
from compatgate.service.baselines.repository import BaselineRow, Key


class NearestFamily(Struct, frozen=True):
    """The approved baseline of the most similar stack family; for comparison only.

    Attributes:
        id: of the approved baseline.
        median: in the unit of the baseline that it is compared with.
        change: from it to that baseline's median, 0.05 is 5 % more; None: it is 0.
    """

    id: int
    family: str
    median: float
    change: float | None


class BaselineDetail(Struct, frozen=True):
    """A version with the runs that it was learned from.

    Attributes:
        nearest: present if no version is approved for its family.
    """

    row: BaselineRow
    baseline: Baseline
    distribution: Distribution
    nearest: NearestFamily | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        learnt = self.baseline.to_json()
        names = ("better", "tolerance", "runs", "discarded", "source", "doubt", "explained")
        parts = {name: learnt[name] for name in names}
        return {
            **summarize(self.row),
            **parts,
            "distribution": msgspec.to_builtins(self.distribution),
            "nearest": msgspec.to_builtins(self.nearest),
        }


def summarize(row: BaselineRow) -> dict[str, Any]:
    """Return a version as lists show it."""
    body = row.to_json()
    learnt = body.pop("body")
    values = sum(len(run["values"]) for run in learnt["runs"])
    return {**body, "unit": learnt["unit"], "learnt_from": len(learnt["runs"]), "values": values}


class BaselineService:
    """The baselines of one database; `Baselines` for the engine."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def approved(self, ground: BaselineKey) -> Mapping[str, Samples]:
        """See `Baselines`."""
        with self._database.reading() as session:
            found = baselines.approved_baselines(
                session, workload=ground.workload, sku=ground.sku, family=ground.family
            )
        return {metric: Baseline.from_json(row.body).samples for metric, row in found.items()}

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

    def list(self, **filters: Any) -> Page[BaselineRow]:
        """Return versions, newest first; filters of `list_baselines`."""
        with self._database.reading() as session:
            return baselines.list_baselines(session, **filters)

    def show(self, number: int) -> BaselineDetail:
        """Return a version.

        Raises:
            NotFound: there is none of that id.
        """
        with self._database.reading() as session:
            return _detail(session, baselines.find_baseline(session, number))

    def approve(self, number: int, *, by: str, explained: str = "") -> BaselineDetail:
        """Approve a proposed version for future runs.

        Args:
            number: id of the version.
            by: who approves.
            explained: why implausible values are right; kept with the baseline.

        Raises:
            NotFound: there is none of that id.
            Conflict: the version is no longer proposed.
            BadInput: its values are implausible, and no reason is given.
        """

        def approved(session: Session, number: int, **decided: Any) -> BaselineRow:
            known = Baseline.from_json(baselines.find_baseline(session, number).body)
            if known.doubt and not (explained or known.explained):
                raise BadInput(
                    f"the baseline {number} needs a reason: {known.doubt}",
                    field="explained",
                    hint=f"baselines approve {number} --explained REASON, or refuse it",
                )
            body = replace(known, explained=explained or known.explained).to_json()
            return baselines.approve_version(session, number, body=body, **decided)

        return self._decide("approve", approved, number, by, explained)

    def refuse(self, number: int, *, by: str) -> BaselineDetail:
        """Refuse a proposed version, or retire an approved one; the next is learned without it.

        Raises:
            NotFound: there is none of that id.
            Conflict: it is neither proposed nor approved.
        """
        return self._decide("refuse", baselines.refuse_version, number, by)

    def _decide(
        self,
        what: str,
        decide: Callable[..., BaselineRow],
        number: int,
        by: str,
        explained: str = "",
    ) -> BaselineDetail:
        now = clock.now()
        with self._database.writing() as session:
            row = decide(session, number, by=by, at=now)
            audit.append(
                session,
                at=now,
                actor=by,
                action=f"baseline.{what}",
                subject=f"{row.workload} {row.metric} on {row.sku}",
                detail={
                    "id": row.id,
                    "version": row.version,
                    "family": row.family,
                    **({"explained": explained} if explained else {}),
                },
            )
            return _detail(session, row)


def _propose_metric(
    session: Session, ground: BaselineKey, spec: MetricSpec, run: str, samples: Samples
) -> None:
    key: Key = (ground.workload, ground.sku, ground.family, samples.name)
    last = baselines.latest_version(session, key)
    if last is not None and run in _learning_runs(last):
        return
    base = _learning_base(session, key, last, samples.doubt) if last else None
    own = [run for run in base.runs if run.sample is None] if base else []
    accepted = [(r.run, Samples(samples.name, spec.unit, (r.values,))) for r in own]
    version = 1 if last is None else last.version + (last.state != "proposed")
    try:
        learnt = learn(*key, spec, [*accepted, (run, samples)], version=version)
    except BadInput:
        return  # it gives nothing to learn from: too few values, or none that are numbers
    kept = base if base and not samples.doubt else None
    learnt = replace(
        learnt,
        doubt=kept.doubt if kept else samples.doubt,
        explained=kept.explained if kept else "",
    )
    baselines.propose_version(session, key, learnt.to_json(), by=run, at=clock.now())


def _learning_runs(row: BaselineRow) -> set[str]:
    known = Baseline.from_json(row.body)
    return {run.run for run in known.runs} | {run.run for run in known.discarded}


def _learning_base(session: Session, key: Key, last: BaselineRow, doubt: str) -> Baseline | None:
    """Return the version whose runs a new version is learned from, with the current run.

    Implausible values, which a person has not accepted, are learned from each other only. Nothing
    is learned of a version that was refused. Samples only start a baseline: from the first own run
    on, own runs make it.
    """
    workload, sku, family, metric = key
    known = Baseline.from_json(last.body)
    open_doubt = last.state == "proposed" and known.doubt and not known.explained
    if doubt:
        return known if open_doubt else None
    if last.state != "refused" and not open_doubt:
        return known
    approved = baselines.approved_baselines(session, workload=workload, sku=sku, family=family)
    return Baseline.from_json(approved[metric].body) if metric in approved else None


def _detail(session: Session, row: BaselineRow) -> BaselineDetail:
    baseline = Baseline.from_json(row.body)
    figures = describe_distribution(baseline)
    return BaselineDetail(
        row, baseline, figures, _nearest_family(session, row, baseline, figures.median)
    )


def _nearest_family(
    session: Session, row: BaselineRow, baseline: Baseline, median: float
) -> NearestFamily | None:
    own = baselines.approved_baselines(
        session, workload=row.workload, sku=row.sku, family=row.family
    )
    if row.metric in own:
        return None
    key: Key = (row.workload, row.sku, row.family, row.metric)
    known = baselines.approved_by_family(session, key)
    family = find_nearest_family(row.family, known)
    if family is None:
        return None
    other = Baseline.from_json(known[family].body)
    factor = find_conversion(other.unit, baseline.unit)
    if factor is None:
        return None
    theirs = describe_distribution(other).median * factor
    change = median / theirs - 1 if theirs else None
    return NearestFamily(known[family].id, family, theirs, change)
