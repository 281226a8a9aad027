"""Apply a judged run to the matrix, in the transaction that stores it.

A candidate with enough evidence is blessed if the policy says so. A blessed entry that a run
contradicts gets a warning. `EntryRemarks` show both with an entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace
from sqlalchemy import select
from sqlalchemy.orm import Session

from compatgate.core.binding import SuiteDefinition
from compatgate.core.entry_evidence import (
    Promotion,
    RunIndex,
    disproves,
    find_contradiction,
    find_places,
    index_runs,
    is_run_of_entry,
    judge_candidate,
)
from compatgate.core.facts import Facts
from compatgate.core.gpus import resolve_gpu
from compatgate.core.matrix import ANY_TARGET, Entry, EntryStatus, Evidence
from compatgate.core.request import Target
from compatgate.core.versions import Version, parse_version
from compatgate.documents.convert import to_entry, to_target
from compatgate.documents.specs import BlessedBySpec, EntryDoc, TargetDoc, decode
from compatgate.errors import BadInput
from compatgate.kit.clock import now
from compatgate.kit.database.database import Database
from compatgate.service.matrix.documents import repository as documents
from compatgate.service.matrix.documents import revisions
from compatgate.service.matrix.documents.models import Entry as EntryRow
from compatgate.service.matrix.documents.models import Pool, TargetUse
from compatgate.service.matrix.documents.revisions import Edit
from compatgate.service.matrix.snapshots.snapshot import Snapshot, keep_counting
from compatgate.service.runs.evidence import evidence as store
from compatgate.service.runs.evidence.evidence import EntryWarning, WarningRow


def store_evidence(session: Session, run: Evidence, facts: Facts, at: datetime) -> dict[str, Any]:
    """Store evidence, and change the matrix as policies say; return the audit details."""
    row = store.add_evidence(session, run, at)
    bound = store.binding_fingerprint(row)
    return {
        "evidence": row.seq,
        "sha256": store.fingerprint(row),
        **({"bound": bound} if bound else {}),
        **apply_run(session, run, facts, at),
    }


AUTHOR = "canary"
"""Author of changes that the gate makes by policy."""
_SPEAKING_STATUSES = ("candidate", "blessed", "deprecated")


def apply_run(session: Session, run: Evidence, facts: Facts, at: datetime) -> dict[str, list[str]]:
    """Bless, warn, revoke and close warnings as policies say.

    ``run`` is stored already, in this writing session. Return the names of the entries concerned,
    by what was done to them.
    """
    suites = {}  # The definition of the suite that has just run; earlier ones are stale.
    if run.bound is not None and run.bound.suite:
        suites[run.suite] = SuiteDefinition(run.bound.suite, run.bound.workloads)
    matrix = _Matrix(session, facts, suites, run.id)
    edits: list[Edit] = []
    done: dict[str, list[str]] = {}
    if run.outcome == "passed":
        done["closed"] = _close_warnings(matrix, run, at)
    for document, entry in matrix.entries_about(run):
        targets = matrix.targets_of(entry)
        status: EntryStatus | None = None
        progress: Promotion | None = None
        if run.outcome == "passed" and entry.status == "candidate":
            places = find_places(entry, targets)
            if any(is_run_of_entry(run, entry, pool) for _, pool in places):
                seconds, evidence = at.timestamp(), matrix.evidence()
                progress = judge_candidate(entry, targets, evidence, seconds, matrix.suites)
            if progress and progress.state == "ready" and progress.automatic:
                why = f"{_run_text(run)} passed, the last of {', '.join(progress.runs)}"
                status = "blessed"
        elif run.outcome == "failed" and entry.status != "candidate":
            against = find_contradiction(run, entry, targets)
            if against is None:
                continue
            done.setdefault("warned", []).append(entry.name)
            message = f"{_run_text(run)} failed; it counts for {', '.join(against.targets)}"
            session.add(
                EntryWarning(
                    entry=entry.name, run=run.id, suite=run.suite, sku=run.sku,
                    driver=run.driver.text, message=message, opened_at=at,
                )
            )  # fmt: skip
            status, why = ("revoked", f"{_run_text(run)} failed") if against.revoke else (None, "")
        if status is not None:
            done.setdefault(status, []).append(entry.name)
            spec = replace(
                document.spec,
                status=status,
                reason=why,
                blessed_by=BlessedBySpec(progress.runs, progress.contents) if progress else UNSET,
            )
            edits.append(Edit(document, replace(document, spec=spec)))
    if edits:
        reason = f"{_run_text(run)} {run.outcome}"
        revisions.make_revision(
            session, edits, author=AUTHOR, reason=reason, action="change", at=at
        )
    return {what: names for what, names in done.items() if names}


def _run_text(run: Evidence) -> str:
    return f"run {run.id} of suite {run.suite} on {run.sku}, driver {run.driver},"


def _close_warnings(matrix: _Matrix, run: Evidence, at: datetime) -> list[str]:
    """Close the warnings that a passed run disproves; return the names of their entries."""
    session = matrix.session
    result = store.open_warnings(session, suite=run.suite, sku=run.sku)
    if not result:
        return []
    failed = {
        e.id: e
        for e in store.load_evidence(session, suites=[run.suite], skus=[run.sku], new=run.id)
    }
    drivers = matrix.drivers(run.sku)
    age = max((one.policy.canary.max_age_s for one in matrix.every_target()), default=0)
    ended = [w for w in result if w.run in failed and disproves(run, failed[w.run], drivers, age)]
    store.close_warnings(session, [w.id for w in ended], run.id, at)
    return sorted({w.entry for w in ended})


class _Matrix:
    """The parts of the stored matrix that concern one run."""

    def __init__(
        self, session: Session, facts: Facts, suites: Mapping[str, SuiteDefinition], new: str
    ) -> None:
        self.session = session
        self.new = new
        self.suites = suites
        self._facts = facts
        self._all: list[Target] | None = None
        self._evidence: RunIndex | None = None

    def entries_about(self, run: Evidence) -> Iterator[tuple[EntryDoc, Entry]]:
        """Yield entries on targets that have the run's SKU, which evidence may change."""
        having = select(Pool.target).where(Pool.gpu.in_(self._spellings(run.sku)))
        concerned = select(TargetUse.name).where(
            TargetUse.kind == "Entry",
            TargetUse.target.in_(having) | (TargetUse.target == ANY_TARGET),
        )
        query = select(EntryRow.document, EntryRow.revision).where(
            EntryRow.status.in_(_SPEAKING_STATUSES), EntryRow.name.in_(concerned)
        )
        for text, revision in self.session.execute(query.order_by(EntryRow.name)).all():
            document = decode("Entry", text)
            if isinstance(document, EntryDoc):
                yield document, to_entry(document, self._facts.gpus, revision)

    def every_target(self) -> list[Target]:
        """Return all targets, resolved."""
        if self._all is None:
            every = documents.load_documents(self.session, "Target")
            self._all = self._resolved(document for document, _ in every)
        return self._all

    def targets_of(self, entry: Entry) -> list[Target]:
        """Return the targets that an entry names, resolved."""
        if ANY_TARGET in entry.targets:
            return self.every_target()
        keys = [("Target", name) for name in entry.targets]
        return self._resolved(documents.find_documents(self.session, keys).values())  # type: ignore[arg-type]

    def _resolved(self, found: Iterable[object]) -> list[Target]:
        targets = []
        for document in found:
            try:
                if isinstance(document, TargetDoc):
                    targets.append(to_target(document, self._facts.gpus))
            except BadInput:
                continue  # a GPU that the facts no longer know: nothing can run there
        return targets

    def evidence(self) -> RunIndex:
        """Return every run that counts."""
        if self._evidence is None:
            discarded = store.load_discarded(self.session)
            every = store.load_evidence(self.session, new=self.new)
            counting = keep_counting(run for run in every if run.id not in discarded)
            self._evidence = index_runs(counting)
        return self._evidence

    def drivers(self, sku: str) -> set[Version]:
        """Return drivers of all pools of a SKU."""
        query = select(Pool.driver).where(Pool.gpu.in_(self._spellings(sku)))
        written = self.session.execute(query.distinct()).scalars()
        return {parse_version("driver", text) for text in written}

    def _spellings(self, sku: str) -> list[str]:
        """Return the spellings of a SKU in the documents of pools."""
        written = self.session.execute(select(Pool.gpu).distinct()).scalars()
        names = []
        for name in written:
            with suppress(BadInput):
                if resolve_gpu(name, self._facts.gpus).sku == sku:
                    names.append(name)
        return names


class EntryRemarks(Struct, frozen=True):
    """The remarks on one entry; ``warnings``: open ones, oldest first."""

    warnings: tuple[WarningRow, ...] = ()
    promotion: Promotion | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain data as members of an entry, without empty members."""
        body: dict[str, Any] = {}
        if self.warnings:
            body["warnings"] = [warning.to_json() for warning in self.warnings]
        if self.promotion:
            body["promotion"] = msgspec.to_builtins(self.promotion)
        return body

    def lines(self) -> list[str]:
        """Return the remarks as lines of text."""
        results = [f"warning since {w.opened_at:%Y-%m-%d}: {w.message}" for w in self.warnings]
        if (about := self.promotion) is None:
            return results
        if about.state == "ready":
            return [*results, f"ready for approval: {', '.join(about.runs)} passed"]
        for need in about.needs:
            where = f"suite {need.suite} for {need.target} on {need.sku}, driver {need.driver}"
            lack = f"run {need.failed} failed: " if need.failed else "not passed yet: "
            results.append(f"{lack}{where}")
        return results or [
            "not promoted: no pool of its targets has a GPU and driver that it is for"
        ]


def entry_remarks(
    database: Database, snapshot: Snapshot, names: Iterable[str]
) -> dict[str, EntryRemarks]:
    """Return the remarks on entries, by name."""
    wanted = list(names)
    warnings: dict[str, list[WarningRow]] = {}
    with database.reading() as session:
        for warning in store.open_warnings(session, entries=wanted):
            warnings.setdefault(warning.entry, []).append(warning)
    runs = index_runs(snapshot.matrix.evidence)
    targets, suites = snapshot.targets.values(), snapshot.matrix.suites
    remarks = {}
    for name in wanted:
        entry, progress = snapshot.entries.get(name), None
        if entry and entry.status == "candidate":
            progress = judge_candidate(entry, targets, runs, now().timestamp(), suites)
        remarks[name] = EntryRemarks(tuple(warnings.get(name, ())), progress)
    return remarks
