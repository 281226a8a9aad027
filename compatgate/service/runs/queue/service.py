"""Submit, show, cancel and repeat runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy.orm import Session

from compatgate.canary.allowed_images import EVERY_IMAGE
from compatgate.canary.engine import STANDARD_SETTINGS, Settings
from compatgate.canary.engine.baseline_judge import list_samples
from compatgate.canary.history import (
    MeasuredStep,
    MetricHistory,
    MetricKey,
    Point,
    Specs,
    collect_points,
    follow_metrics,
)
from compatgate.canary.peaks import PeakShare, find_shares
from compatgate.canary.run import BY_HISTORY, Report, StepResult, select_due
from compatgate.canary.workloads import Library
from compatgate.canary.workloads.library import define_suites
from compatgate.core.binding import SuiteDefinition
from compatgate.core.facts import Facts
from compatgate.documents.sources import suggest_name
from compatgate.errors import CompatgateError, Conflict, NotFound
from compatgate.kit import clock
from compatgate.kit.database.database import Database, in_reading
from compatgate.kit.database.tables import Page
from compatgate.kit.principal import TargetPatterns
from compatgate.service.matrix.documents.service import EvidenceRemarks
from compatgate.service.matrix.snapshots.reader import Snapshots
from compatgate.service.matrix.snapshots.snapshot import Snapshot
from compatgate.service.runs.evidence import evidence as store
from compatgate.service.runs.evidence.imports import import_report
from compatgate.service.runs.evidence.pools import (
    EntryPool,
    RunEvidence,
    discard_run,
    find_entry_pools,
    find_run_evidence,
)
from compatgate.service.runs.evidence.promotion import EntryRemarks, entry_remarks
from compatgate.service.runs.queue import leases
from compatgate.service.runs.queue import repository as runs
from compatgate.service.runs.queue.leases import could_take
from compatgate.service.runs.queue.models import HostRow, RunOutput, RunRow, StepRow
from compatgate.service.runs.queue.queue import DatabaseQueue, make_offer, note_run
from compatgate.service.runs.queue.reference import AUTO, NONE, AllowedImages, ReferenceFinder
from compatgate.service.runs.queue.repository import list_measured_steps
from compatgate.service.runs.queue.schemas import ImportRequest, RunFilters, RunRequest
from compatgate.service.runs.queue.submission import (
    blessed_evidence,
    expect_run,
    plan_runs,
    verification_candidates,
    verification_key,
)

_log = logging.getLogger(__name__)
GONE_AFTER = timedelta(hours=1)
"""Silence after which a worker counts as gone."""
_OUTLINE = (
    "name", "workload", "seed", "outcome", "reason", "exit_code", "image", "block", "started_at",
    "finished_at",
)  # fmt: skip
"""Members of a block without its report; its log has the values."""


def peak_shares(
    steps: Iterable[StepRow], catalogue: Callable[[], Library], facts: Facts
) -> dict[str, tuple[PeakShare, ...]]:
    """Return shares of published peaks by step, as the current workloads name the peaks.

    Workloads are not read where no step saw a GPU. If they cannot be read, there are no shares.
    """
    seen = []
    for step in steps:
        env = (step.body.get("report") or {}).get("env")
        if env and env.get("gpus"):
            seen.append(step)
    try:
        workloads = catalogue().workloads if seen else {}
    except CompatgateError:
        return {}
    results = {}
    for step in seen:
        if workload := workloads.get(step.body["workload"]):
            report = msgspec.convert(step.body["report"], Report)
            shares = find_shares(workload.metrics, report, facts.gpus, facts.gpu_peaks)
            results[step.name] = shares
    return {name: shares for name, shares in results.items() if shares}


class RunDetail(Struct, frozen=True):
    """A run with its steps, their shares of published peaks, and its evidence if it is any.

    The blocks of a paired run are processes of candidate or reference; ``pairs`` says how they
    stand, as plain data; None if the candidate is judged alone.
    """

    run: RunRow
    steps: tuple[StepRow, ...]
    peaks: dict[str, tuple[PeakShare, ...]] = {}
    blocks: tuple[StepRow, ...] = ()
    pairs: dict[str, Any] | None = None
    evidence: RunEvidence | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        steps = [
            {**step.to_json(), "peaks": msgspec.to_builtins(self.peaks.get(step.name, ()))}
            for step in self.steps
        ]
        judged = self.evidence.to_json() if self.evidence else None
        blocks = [
            {name: one.body.get(name) for name in _OUTLINE}
            | {"attempt": one.attempt, "host": one.host}
            for one in self.blocks
        ]
        pairs = self.pairs and {**self.pairs, "blocks": blocks}
        return {**self.run.to_json(), "steps": steps, "pairs": pairs, "evidence": judged}


def _describe_wait(run: RunRow, hosts: Iterable[HostRow]) -> RunRow:
    """Return a run that has not ended; if every host that could run it is away, with the reason."""
    if run.state == "queued":
        able = [host for host in hosts if could_take(run, make_offer(host))]
    else:
        able = [host for host in hosts if host.name == run.on_host]
    if not able or not all(host.away_since for host in able):
        return run
    return replace(run, doing=f"waits for the host {able[0].name}, {able[0].away}")


class Runs(EvidenceRemarks):
    """The runs of one database.

    ``under_test`` are the images that a submission may name: every image, until a service limits
    it.
    """

    find_ids = in_reading(runs.find_run_ids)
    find_host = in_reading(leases.find_host)
    hosts = in_reading(leases.list_hosts)
    past = in_reading(runs.list_past_steps)
    pruned_log = in_reading(runs.find_pruned_log)
    logged_steps = in_reading(runs.find_logged_steps)
    queue_state = in_reading(runs.read_queue)
    evidence = in_reading(store.list_evidence)
    warnings = in_reading(store.open_warnings)
    comparisons = in_reading(store.find_comparisons)

    def __init__(
        self,
        database: Database,
        facts: Facts,
        snapshots: Snapshots,
        catalogue: Callable[[], Library],
        allowed_images: AllowedImages,
    ) -> None:
        self._allowed_images = allowed_images
        self._database = database
        self._facts = facts
        self._snapshots = snapshots
        self.catalogue = catalogue
        self.under_test = EVERY_IMAGE
        self.queue = self.open_queue()

    def define_suites(self) -> dict[str, SuiteDefinition]:
        """Return the definition of each suite, as `define_suites`."""
        return define_suites(self.catalogue)

    def find_unknown_suites(self, session: Session, names: Collection[str]) -> dict[str, str]:
        """Return the suites that no folder of the gate and no worker has, each with a hint."""
        return leases.find_unknown_suites(session, names, self.catalogue)

    def open_queue(
        self, settings: Settings = STANDARD_SETTINGS, suites: Collection[str] = ()
    ) -> DatabaseQueue:
        """Return the queue for a worker, with the worker's settings and the names of its suites."""
        return DatabaseQueue(self._database, self._facts, self._snapshots.expire, settings, suites)

    def submit(self, asked: RunRequest, *, by: str, purpose: str = "request") -> tuple[RunRow, ...]:
        """Queue the runs that a submission means; their purpose may also be ``verification``."""
        self.under_test.check(asked.image)
        catalogue, snapshot = self.catalogue(), self._snapshots.refresh()
        now = clock.now()
        with self._database.reading() as session:
            known = leases.load_hosts(session)
            made = plan_runs(
                asked, catalogue, snapshot, known, self._facts, by=by, at=now, purpose=purpose
            )
            made = [self._compare(session, asked.against, run, snapshot, now) for run in made]
            workloads = catalogue.of_suite(asked.suite)
            made = [expect_run(session, run, workloads) for run in made]
        with self._database.writing() as session:
            runs.add_runs(session, made)
            for run in made:
                detail = {"suite": run.suite, "target": run.target, "pool": run.pool}
                if run.against and run.against.image:
                    detail["against"] = run.against.image
                if run.explained:
                    detail["explained"] = run.explained
                note_run(session, now, by, "queued", run.id, {**detail, "image": run.image})
            return tuple(runs.find_run(session, run.id) for run in made)

    def _compare(
        self, session: Session, asked: str | None, run: RunRow, snapshot: Snapshot, now: datetime
    ) -> RunRow:
        finder = ReferenceFinder(session, run, snapshot, now, self._allowed_images)
        against = finder.find(asked)
        if against is None:
            return run
        try:
            self.under_test.check(against.image)
        except CompatgateError as error:
            if against.asked not in (AUTO, BY_HISTORY):
                raise
            against = replace(against, image=None, reason=error.problem)
        return replace(run, against=against)

    def import_report(self, asked: ImportRequest, *, by: str) -> tuple[RunRow, ...]:
        """Store the report of another tool as runs that have ended."""
        snapshot = self._snapshots.refresh()
        with self._database.writing() as session:
            made = import_report(session, asked, snapshot, self._facts, by=by, at=clock.now())
            result = tuple(runs.find_run(session, run_id) for run_id in made)
        self._snapshots.expire()
        return result

    def list(self, *, within: TargetPatterns | None = None, **filters: Any) -> Page[RunRow]:
        """Return runs, newest first, by the filters of `RunFilters`, and of some targets only."""
        with self._database.reading() as session:
            result = runs.list_runs(session, RunFilters(**filters), within=within)
            return replace(result, items=self._name_away(session, result.items))

    def get(self, run_id: str) -> RunRow:
        """Return a run."""
        with self._database.reading() as session:
            return self._find(session, run_id)

    def _find(self, session: Session, run_id: str) -> RunRow:
        return self._name_away(session, [runs.find_run(session, run_id)])[0]

    def _name_away(self, session: Session, rows: Sequence[RunRow]) -> tuple[RunRow, ...]:
        """Return runs; those that no host can go on with now name the host that is away."""
        open_ = any(not row.has_ended for row in rows)
        hosts = leases.load_hosts(session) if open_ else []
        if not any(host.away_since for host in hosts):
            return tuple(rows)
        return tuple(row if row.has_ended else _describe_wait(row, hosts) for row in rows)

    def away_hosts(self) -> Sequence[HostRow]:
        """Return the staging hosts that do not answer, by name."""
        with self._database.reading() as session:
            return [host for host in leases.load_hosts(session) if host.away_since]

    def show(self, run_id: str) -> RunDetail:
        """Return a run with its steps."""
        with self._database.reading() as session:
            run, every = self._find(session, run_id), runs.list_steps(session, run_id)
            pairs = runs.find_pairs(session, run_id)
            judged = find_run_evidence(session, run_id) if run.has_ended else None
        steps = tuple(one for one in every if one.body.get("block") is None)
        blocks = tuple(one for one in every if one.body.get("block") is not None)
        peaks = peak_shares(steps, self.catalogue, self._facts)
        return RunDetail(run, steps, peaks, blocks, pairs, judged)

    def output(
        self, run_id: str, *, after: int = 0, step: str | None = None, limit: int = 100
    ) -> tuple[RunRow, Sequence[RunOutput]]:
        """Return a run, and pieces of its log after one; both as of one moment."""
        with self._database.reading() as session:
            result = self._find(session, run_id)
            return result, runs.read_output(session, run_id, after=after, step=step, limit=limit)

    def last_output(self, run_id: str, *, limit: int) -> tuple[RunRow, Sequence[RunOutput]]:
        """Return a run, and the last pieces of its log; both as of one moment."""
        with self._database.reading() as session:
            return self._find(session, run_id), runs.read_last_output(session, run_id, limit=limit)

    def cancel(self, run_id: str, *, by: str) -> RunRow:
        """End a run: at once where it waits, else when its worker next says that it lives.

        A worker that was silent for `GONE_AFTER` is not waited for, nor is one that would clean up.
        """
        now = clock.now()
        with self._database.writing() as session:
            run = runs.find_run(session, run_id)
            if run.has_ended:
                what = f"the run {run_id} has ended: {run.state}"
                raise Conflict(what, field="run", value=run_id)
            if run.state == "queued":
                leases.end_run(session, run_id, "cancelled", f"cancelled by {by}", now)
                note_run(session, now, by, "cancelled", run_id, {})
            elif run.lease_until is not None and now - run.lease_until > GONE_AFTER:
                gone = f"its worker {run.worker} is gone, and may have left it on {run.on_host}"
                leases.end_run(session, run_id, "cancelled", f"cancelled by {by}; {gone}", now)
                note_run(session, now, by, "cancelled", run_id, {"worker": run.worker})
            elif run.cancel_by is None:
                leases.set_run(session, run_id, cancel_by=by)
                note_run(session, now, by, "cancel", run_id, {"state": run.state})
            return runs.find_run(session, run_id)

    def rerun(self, run_id: str, *, by: str, purpose: str = "request") -> tuple[RunRow, ...]:
        """Requeue a run, for the current state of its target."""
        run = self.get(run_id)
        if not run.has_ended:
            raise Conflict(f"the run {run_id} is {run.state}", field="run", value=run_id)
        if run.purpose == "import":
            hint = "run the tool again and import its report, or run a suite"
            what = f"{run_id} was imported from {run.suite}"
            raise Conflict(what, field="run", value=run_id, hint=hint)
        stated = {name: getattr(run, name) for name in RunRequest.__struct_fields__}
        stated |= {"stack": run.stack or None, "explained": run.explained or None}
        stated["against"] = run.against.asked if run.against else NONE
        if purpose == "verification":  # judged by its history first, and not excused
            stated |= {"against": BY_HISTORY, "explained": None}
        return self.submit(RunRequest(**stated), by=by, purpose=purpose)

    def discard(self, run_id: str, *, by: str, reason: str) -> RunDetail:
        """Discard a judged run: neither its pass nor its failure counts from now on."""
        with self._database.writing() as session:
            discard_run(session, run_id, by=by, reason=reason, at=clock.now())
        self._snapshots.expire()
        return self.show(run_id)

    def take_samples(self, run_id: str, *, step: str | None = None) -> dict[str, Any]:
        """Return the measurements of an ended run as files, and why steps give none."""
        detail = self.show(run_id)
        if not detail.run.has_ended:
            hint = "wait for the end of the run, then take samples"
            what = f"the run {run_id} is {detail.run.state}"
            raise Conflict(what, field="run", value=run_id, hint=hint)
        names = [row.name for row in detail.steps]
        if step is not None and step not in names:
            hint = suggest_name(step, names)
            raise NotFound(f"{run_id} has no step {step!r}", field="step", value=step, hint=hint)
        chosen = (row.body for row in detail.steps if step in (None, row.name))
        return list_samples(run_id, (msgspec.convert(body, StepResult) for body in chosen))

    def entry_pools(self, name: str) -> Sequence[EntryPool]:
        """Return the pools of runs that measured what an entry allows."""
        return find_entry_pools(self._snapshots.current(), name)

    def ended(self, run_ids: Collection[str]) -> set[str]:
        """Return the known runs of some ids that have ended."""
        with self._database.reading() as session:
            result = runs.find_runs(session, sorted(run_ids))
        return {name for name, run in result.items() if run.has_ended}

    def verify_due(self, *, by: str, every_s: int) -> tuple[RunRow, ...]:
        """Requeue the runs that blessed entries depend on, so many seconds after the last."""
        result = list(blessed_evidence(self._snapshots.refresh()))
        now = clock.now()
        with self._database.reading() as session:
            rested_on = runs.find_runs(session, [run.id for _, run in result])
            since = now - timedelta(seconds=every_s)
            tried = runs.list_by_purpose(session, "verification", since)
        queued: Sequence[RunRow] = ()
        asked: set[bytes] = set()
        for item in select_due(
            verification_candidates(result, rested_on, tried),
            int(now.timestamp()),
            every_s=every_s,
        ):
            like = verification_key(rested_on[item.run])
            if like in asked:
                continue  # another entry rests on the same
            asked.add(like)
            try:
                queued = (*queued, *self.rerun(item.run, by=by, purpose="verification"))
            except CompatgateError as error:
                _log.warning("entry %s cannot be verified again: %s", item.entry, error.detail)
        return tuple(queued)

    def histories(self, *, metric: str | None = None, **filters: Any) -> Sequence[MetricHistory]:
        """Return the history of a metric, or of each; those that became worse first."""
        result = follow_metrics(*self._measured(filters))
        return [one for one in result if metric in (None, one.metric)]

    def points(self, **filters: Any) -> Mapping[MetricKey, Sequence[Point]]:
        """Return the values of each metric, newest first, without looking for changes."""
        return collect_points(*self._measured(filters))

    def _measured(self, filters: dict[str, Any]) -> tuple[Sequence[MeasuredStep], Specs]:
        with self._database.reading() as session:
            steps = list_measured_steps(session, **filters)
        return steps, {name: one.metrics for name, one in self.catalogue().workloads.items()}

    def remarks(self, entries: Iterable[str]) -> dict[str, EntryRemarks]:
        """Return the remarks of runs on entries, by name."""
        return entry_remarks(self._database, self._snapshots.current(), entries)
