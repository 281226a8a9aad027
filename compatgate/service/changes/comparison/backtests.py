"""Backtest a change of the matrix: decide recorded questions and runs before and after it.

The change is not stored: the state after it is the current snapshot with the edited documents.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from itertools import chain
from typing import TYPE_CHECKING

from msgspec import convert

from compatgate.core.compare.backtest import run_backtest
from compatgate.core.matrix import ANY_TARGET
from compatgate.documents.specs import Document, Kind, WaiverDoc, compare_document, key_of
from compatgate.errors import BadInput, NotFound
from compatgate.kit import clock
from compatgate.kit.sections import shorten
from compatgate.service.changes.comparison.recorded import list_tested_questions
from compatgate.service.changes.comparison.schemas import DECISIONS, QUESTIONS, SHOWN
from compatgate.service.matrix.documents import imports
from compatgate.service.matrix.documents import repository as documents
from compatgate.service.matrix.documents.blessing import assess_evidence, targets_of
from compatgate.service.matrix.documents.revisions import Edit
from compatgate.service.matrix.documents.schemas import (
    ImportPreviewBody,
    LetThroughBody,
    WaiverScopeBody,
)
from compatgate.service.matrix.proposals.schemas import DAYS, BacktestBody
from compatgate.service.matrix.snapshots.snapshot import Snapshot, advance_snapshot

if TYPE_CHECKING:
    from compatgate.documents.sources import Source
    from compatgate.service.gate.questions.service import Gate
    from compatgate.service.matrix.documents.service import MatrixService

_MAX_UNREAD = 5
_MAX_NAMED = 3
_MAX_WAIVERS = 10
_MAX_NEEDS = 1_000
_PREVIEW = {"decisions": 20_000, "questions": 1_000, "shown": 20}
"""Bounds of what a dry run computes for each waiver."""


def apply_edits(snapshot: Snapshot, edits: Iterable[Edit]) -> Snapshot:
    """Return a snapshot with edits, as the next revision would make it; nothing is stored."""
    revision = snapshot.revision + 1
    versions = [(*key_of(edit.document), edit.after, revision) for edit in edits]
    return advance_snapshot(snapshot, versions, revision)


def list_targets(edits: Iterable[Edit]) -> tuple[str, ...] | None:
    """Return the targets that edits concern, by name; None: all of them."""
    names = {name for edit in edits for name in targets_of(edit)}
    return None if ANY_TARGET in names else tuple(sorted(names))


def backtest_edits(
    gate: Gate,
    edits: Sequence[Edit],
    *,
    days: int = DAYS,
    decisions: int = DECISIONS,
    questions: int = QUESTIONS,
    shown: int = SHOWN,
) -> BacktestBody:
    """Decide recorded questions before and after edits, which are not stored.

    Only questions about targets that the edits concern are decided: no edit changes others. Of
    these the newest decisions are read, the latest questions are decided, and so many are shown of
    each group.
    """
    before, now = gate.snapshot(), clock.now()
    since = now - timedelta(days=days)
    with gate.database.reading() as session:
        recorded = list_tested_questions(
            session, list_targets(edits), since, decisions=decisions, questions=questions
        )
    after = apply_edits(before, edits)
    backtest = gate.compute(run_backtest, recorded.questions, before, after, now, shown)
    remarks = list(recorded.remarks)
    if backtest.unread:
        named = [f"{name}: {why}" for name, why in list(backtest.unread.items())[:_MAX_UNREAD]]
        count = len(backtest.unread)
        remarks.append(f"{count} questions were not decided: {shorten(named, _MAX_NAMED)}")
    return BacktestBody(
        summary=backtest.summary if edits else "nothing would change",
        counts=backtest.counts,
        groups=list(backtest.groups),
        changes=[change for edit in edits if (change := compare_document(edit.before, edit.after))],
        days=days,
        since=since,
        questions=backtest.questions,
        decisions=backtest.decisions,
        complete=not remarks,
        remarks=remarks,
        matrix_revision=before.revision,
        facts=before.facts.digest,
    )


def plan_edits(
    gate: Gate,
    matrix: MatrixService,
    sources: Sequence[Source],
    deleted: Sequence[tuple[Kind, str]] = (),
) -> list[Edit]:
    """Return the edits that files and deletions would make; equal documents make none."""
    read: Sequence[Document] = []
    with gate.database.reading() as session:
        reader = matrix.open_reader(session, force=True)
        read = reader.read_files(sources) if sources else []
        _, edits = imports.plan_import(session, read)
        stored = documents.find_documents(session, deleted)
    written = {key_of(document) for document in read}
    for kind, name in deleted:
        if (kind, name) not in stored:
            raise NotFound(f"{kind} {name!r} does not exist", field="delete", value=name)
        if (kind, name) in written:
            problem = f"the {kind} {name} is both written and deleted"
            raise BadInput(problem, field="delete", value=name)
    return [*edits, *(Edit(document, None) for document in stored.values())]


def preview_import(gate: Gate, edits: Sequence[Edit]) -> ImportPreviewBody:
    """Return what a list of changed fields does not show of a planned import.

    These are the evidence that blessings lack, and what each waiver lets through.
    """
    evidence = assess_evidence(edits, gate.snapshot(), gate.facts)
    waivers = [edit for edit in edits if isinstance(edit.after, WaiverDoc)]
    remarks = []
    if len(waivers) > _MAX_WAIVERS:
        remarks.append(f"{len(waivers)} waivers: the first {_MAX_WAIVERS} were backtested")
    needs = sorted(evidence.needs, key=lambda need: not need.required)
    if len(needs) > _MAX_NEEDS:
        remarks.append(f"{len(needs)} canary runs are missing: {_MAX_NEEDS} are listed")
    return ImportPreviewBody(
        runs=list(evidence.runs),
        needs=needs[:_MAX_NEEDS],
        waivers=[_find_scope(gate, edit) for edit in waivers[:_MAX_WAIVERS]],
        remarks=remarks,
    )


def _find_scope(gate: Gate, edit: Edit) -> WaiverScopeBody:
    """Return what one waiver alone lets through: other edits may change the same answers."""
    backtest = backtest_edits(gate, [edit], **_PREVIEW)
    newly = [group.examples for group in backtest.groups if group.effect == "newly_allowed"]
    examples = [convert(one, LetThroughBody, from_attributes=True) for one in chain(*newly)]
    allowed = backtest.counts.newly_allowed
    return WaiverScopeBody(
        name=edit.document.metadata.name,
        days=backtest.days,
        stacks=allowed.questions,
        decisions=allowed.decisions,
        nodes=allowed.nodes,
        examples=examples[: _PREVIEW["shown"]],
        remarks=backtest.remarks,
    )
