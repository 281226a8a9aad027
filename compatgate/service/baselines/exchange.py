"""Exchange baselines and samples as files, between gates.

An imported baseline is a proposal until a person approves it, and a baseline measured here
comes before one measured elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct
from sqlalchemy.orm import Session

from compatgate.canary.judge.baseline import Baseline, SampleSource, learn
from compatgate.canary.judge.result import Samples
from compatgate.canary.run import StepResult
from compatgate.canary.samples.baseline_files import (
    ExportedBaseline,
    RefusedItem,
    make_baseline_line,
    make_head_line,
    make_sample_key,
    read_baseline_files,
)
from compatgate.canary.samples.extract import ExtractedSamples, FinishedRun, extract_samples
from compatgate.canary.samples.sample import MOMENT, Sample, format_sample
from compatgate.canary.workload import MetricSpec, Workload
from compatgate.canary.workloads import Library
from compatgate.core.facts import Facts
from compatgate.core.stack import parse_stack
from compatgate.documents.sources import Source, suggest_name
from compatgate.errors import BadInput, Conflict, NotFound
from compatgate.kit import clock
from compatgate.kit.database.database import Database
from compatgate.kit.database.tables import pages
from compatgate.service.audit import repository as audit
from compatgate.service.baselines import repository as baselines
from compatgate.service.baselines.repository import BaselineRow, Key
from compatgate.service.baselines.service import summarize
from compatgate.service.runs.service import Runs


def collect_samples(
    runs: Runs, facts: Facts, run_id: str, *, step: str | None = None, note: str = ""
) -> dict[str, Any]:
    """Return the measurements of a run as files, and why steps give none; as plain data.

    Args:
        runs: of the database.
        facts: to read GPUs by.
        run_id: of a run that has ended.
        step: only this one.
        note: kept in each file.

    Raises:
        NotFound: the run does not exist, or it lacks the step.
        Conflict: it has not ended.
    """
    detail = runs.show(run_id)
    if not detail.run.has_ended:
        hint = "wait for the end of the run, then take samples"
        what = f"the run {run_id} is {detail.run.state}"
        raise Conflict(what, field="run", value=run_id, hint=hint)
    names = [row.name for row in detail.steps]
    if step is not None and step not in names:
        hint = suggest_name(step, names)
        raise NotFound(f"{run_id} has no step {step!r}", field="step", value=step, hint=hint)
    whole = FinishedRun(
        id=run_id,
        state=detail.run.state,
        reason=detail.run.reason,
        stack=parse_stack(detail.run.stack),
        steps=tuple(msgspec.convert(row.body, StepResult) for row in detail.steps),
    )
    return sample_files(
        extract_samples(whole, runs.catalogue().workloads, facts, step=step, note=note)
    )


def sample_files(taken: ExtractedSamples) -> dict[str, Any]:
    """Return the collected samples, each with the file next to its workload."""
    return {
        "samples": [
            {
                "name": sample.head.file_name,
                "workload": sample.head.workload,
                "step": sample.head.step,
                "text": format_sample(sample),
            }
            for sample in taken.samples
        ],
        "refused": [{"step": each.step, "reason": each.reason} for each in taken.refused],
    }


class ImportReport(Struct, frozen=True):
    """The result of an import.

    Attributes:
        proposed: versions that now wait for approval.
        unchanged: values that exist already, or give way to existing ones.
        refused: values that this gate cannot judge by.
    """

    proposed: tuple[BaselineRow, ...]
    unchanged: tuple[RefusedItem, ...]
    refused: tuple[RefusedItem, ...]


def import_report(found: ImportReport) -> dict[str, Any]:
    """Convert the result of an import to plain data."""
    left_out = {
        "unchanged": msgspec.to_builtins(found.unchanged),
        "refused": msgspec.to_builtins(found.refused),
    }
    return {"proposed": [summarize(row) for row in found.proposed], **left_out}


class BaselineExchange:
    """Import and export of the baselines of one database.

    Args:
        database: with the schema.
        catalogue: loads the workloads.
        facts: to read GPUs by.
    """

    def __init__(self, database: Database, catalogue: Callable[[], Library], facts: Facts) -> None:
        self._database = database
        self._catalogue = catalogue
        self._facts = facts

    def lines(self, *, workload: str | None = None, sku: str | None = None) -> list[dict[str, Any]]:
        """Return the approved baselines as the lines of a file.

        Args:
            workload: only this one's; its name, or with the digest of its content.
            sku: only this one's.
        """
        found = [make_head_line(clock.now().strftime(MOMENT))]
        named = workload or ""
        with self._database.reading() as session:
            for row in _approved_baselines(
                session, sku=sku, workload=named if "@" in named else None
            ):
                if named in ("", row.workload, row.workload.partition("@")[0]):
                    found.append(_to_line(row))
        return found

    def take(self, sources: Sequence[Source], *, by: str) -> ImportReport:
        """Propose the baselines of files; a malformed file proposes nothing.

        Raises:
            ManyProblems: every error, with file, line and field.
        """
        offered = read_baseline_files(sources, self._catalogue().workloads, self._facts)
        proposals = [
            *_of_samples(offered.samples),
            *(_of_baseline(line, workload) for line, workload in offered.baselines),
        ]
        now = clock.now()
        with self._database.writing() as session:
            writer = _ProposalWriter(session, by)
            for proposal in proposals:
                writer.propose(proposal)
            if writer.made:
                detail = {"proposed": writer.made, "files": len(sources)}
                audit.append(
                    session, at=now, actor=by, action="baseline.import", subject="", detail=detail
                )
            rows = tuple(baselines.find_baseline(session, number) for number in writer.made)
        refused = (*offered.refused, *writer.refused)
        return ImportReport(rows, tuple(writer.unchanged), refused)


class _Proposal(Struct, frozen=True):
    """Values to learn a version from.

    Attributes:
        accepted: run and its samples, oldest first.
        sources: of runs that came as samples.
        source: of a baseline of another gate, in words; "": these are samples.
    """

    key: Key
    spec: MetricSpec
    accepted: list[tuple[str, Samples]]
    sources: Mapping[str, SampleSource]
    source: str = ""

    @property
    def named(self) -> str:
        """Return the name of the baseline for people."""
        workload, sku, family, metric = self.key
        return f"{metric} of {workload} on {sku}, {family}"


class _ProposalWriter:
    """The writer of proposals, in one transaction."""

    def __init__(self, session: Session, by: str) -> None:
        self._session = session
        self._by = by
        self.made: list[int] = []
        self.unchanged: list[RefusedItem] = []
        self.refused: list[RefusedItem] = []

    def propose(self, proposal: _Proposal) -> None:
        last = baselines.latest_version(self._session, proposal.key)
        known = Baseline.from_json(last.body) if last else None
        if last and known and (why := _reason_to_skip(proposal, last, known)):
            self.unchanged.append(RefusedItem(proposal.named, why))
            return
        more = not proposal.source and known is not None and known.starting
        version = 1 if last is None else last.version + (last.state != "proposed")
        try:
            learnt = _learn_body(proposal, known if more else None, version)
        except BadInput as error:
            self.refused.append(RefusedItem(proposal.named, error.detail))
            return
        self.made.append(
            baselines.propose_version(
                self._session, proposal.key, learnt.to_json(), by=self._by, at=clock.now()
            )
        )


def _reason_to_skip(proposal: _Proposal, last: BaselineRow, known: Baseline) -> str:
    """Return why an existing version makes the proposal unnecessary; "": propose it."""
    offered = {run for run, _ in proposal.accepted}
    have = {run.run for run in known.runs} | {run.run for run in known.discarded}
    if offered <= have and (not proposal.source or len(offered) == len(known.runs)):
        return f"version {last.version} contains it already"
    waits = last.state == "proposed"
    elsewhere = known.starting or bool(known.source)
    if waits and not elsewhere:
        return f"version {last.version} of runs here is proposed (baseline {last.id})"
    if not proposal.source and not (waits and known.starting):
        return f"version {last.version} is {last.state}: samples only start a new baseline"
    return ""


def _learn_body(proposal: _Proposal, known: Baseline | None, version: int) -> Baseline:
    """Learn the version, also from the samples of a proposed one.

    Raises:
        BadInput: nothing can be learned from the values.
    """
    before = known.runs if known else ()
    accepted = [
        (run.run, Samples(proposal.key[3], proposal.spec.unit, (run.values,))) for run in before
    ]
    sources = {run.run: run.sample for run in before if run.sample} | dict(proposal.sources)
    named = {run for run, _ in proposal.accepted}
    accepted = [each for each in accepted if each[0] not in named] + proposal.accepted
    if not proposal.source:
        accepted.sort(key=lambda each: sources[each[0]].measured_at)
    learnt = learn(*proposal.key, proposal.spec, accepted, version=version, sources=sources)
    return msgspec.structs.replace(learnt, source=proposal.source)


def _of_samples(samples: Sequence[tuple[Sample, Workload]]) -> list[_Proposal]:
    found: dict[Key, _Proposal] = {}
    for sample, workload in samples:
        ground = make_sample_key(sample)
        for values in sample.values():
            key = (ground.workload, ground.sku, ground.family, values.name)
            spec = workload.metrics[values.name]
            proposal = found.setdefault(key, _Proposal(key, spec, [], {}))
            run = sample.head.key
            if run not in proposal.sources:
                proposal.accepted.append((run, values))
                found[key] = msgspec.structs.replace(
                    proposal, sources={**proposal.sources, run: sample.source}
                )
    return list(found.values())


def _of_baseline(line: ExportedBaseline, workload: Workload) -> _Proposal:
    key = (line.workload, line.sku, line.family, line.metric)
    spec = workload.metrics[line.metric]
    return _Proposal(key, spec, line.accepted, line.sources, line.origin)


def _approved_baselines(session: Session, **filters: Any) -> list[BaselineRow]:
    listed = partial(baselines.list_baselines, session)
    found = (row for part in pages(listed, state="approved", **filters) for row in part.items)
    return sorted(found, key=lambda r: (r.workload, r.sku, r.family, r.metric))


def _to_line(row: BaselineRow) -> dict[str, Any]:
    assert row.decided_by is not None  # noqa: S101 - it is approved
    assert row.decided_at is not None  # noqa: S101
    return make_baseline_line(
        msgspec.structs.replace(Baseline.from_json(row.body), version=row.version),
        approved_by=row.decided_by,
        approved_at=row.decided_at.strftime(MOMENT),
    )
