"""Backtest a change of the matrix: decide recorded questions and runs before and after it.

The change is not stored: the state after it is the current snapshot with the edited documents.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy.orm import Session

from compatgate.core.backtest import (
    EFFECTS,
    AskedQuestion,
    Backtest,
    ChangeGroup,
    Effect,
    QuestionChange,
    name_rule,
    run_backtest,
)
from compatgate.core.matrix import ANY_TARGET
from compatgate.core.rules.caveats import some_pools
from compatgate.documents.specs import Document, Kind, compare_document, key_of
from compatgate.errors import BadInput, NotFound
from compatgate.kit import clock
from compatgate.kit.sections import shorten
from compatgate.service.backtests.schemas import (
    DAYS,
    DECISIONS,
    QUESTIONS,
    SHOWN,
    BacktestBody,
    BacktestCountsBody,
    BacktestGroupBody,
    EffectCountBody,
    QuestionChangeBody,
)
from compatgate.service.gate.decision_counts import AskedStack, list_asked_stacks, list_askers
from compatgate.service.gate.snapshot import Snapshot, advance_snapshot
from compatgate.service.matrix import imports
from compatgate.service.matrix import repository as documents
from compatgate.service.matrix.blessing import targets_of
from compatgate.service.matrix.revisions import Edit
from compatgate.service.matrix.schemas import ChangeBody
from compatgate.service.runs.models import RunRow
from compatgate.service.runs.repository import list_run_questions

if TYPE_CHECKING:
    from compatgate.documents.sources import Source
    from compatgate.service.gate.service import Gate


_MAX_LEFT = 5
_MAX_NAMED = 3


def apply_edits(snapshot: Snapshot, edits: Iterable[Edit]) -> Snapshot:
    """Return a snapshot with edits, as the next revision would make it; nothing is stored.

    Args:
        snapshot: to start from; it does not change.
        edits: each of another document.
    """
    revision = snapshot.revision + 1
    versions = [(*key_of(edit.document), edit.after, revision) for edit in edits]
    return advance_snapshot(snapshot, versions, revision)


def backtest_edits(
    gate: Gate,
    edits: Sequence[Edit],
    *,
    days: int = DAYS,
    decisions: int = DECISIONS,
    questions: int = QUESTIONS,
    shown: int = SHOWN,
) -> BacktestBody:
    """Decide recorded questions before and after edits.

    Only questions about targets that the edits concern are decided: no edit changes others.

    Args:
        gate: with the decision log, the runs and the current matrix.
        edits: of the change; they are not stored.
        days: period of the decisions.
        decisions: most decisions to read, the newest.
        questions: most different questions to decide, the latest.
        shown: most questions to list of each group.

    Raises:
        Unavailable: the database does not answer.
    """
    before = gate.snapshot()
    found = backtest_snapshots(
        gate,
        before,
        apply_edits(before, edits),
        list_targets(edits),
        edits=edits,
        days=days,
        decisions=decisions,
        questions=questions,
        shown=shown,
    )
    return found if edits else replace(found, summary="nothing would change")


def list_targets(edits: Iterable[Edit]) -> tuple[str, ...] | None:
    """Return the targets that edits concern, by name; None: all of them."""
    names = {name for edit in edits for name in targets_of(edit)}
    return None if ANY_TARGET in names else tuple(sorted(names))


def backtest_snapshots(
    gate: Gate,
    before: Snapshot,
    after: Snapshot,
    targets: Sequence[str] | None,
    *,
    edits: Sequence[Edit] = (),
    days: int = DAYS,
    decisions: int = DECISIONS,
    questions: int = QUESTIONS,
    shown: int = SHOWN,
) -> BacktestBody:
    """Decide recorded questions on two snapshots, such as with other facts.

    Args:
        gate: with the decision log and the runs.
        before: the current snapshot.
        after: the snapshot with a change.
        targets: that the change concerns; None: all targets.
        edits: of the change, to list.
        days: as of `backtest_edits`.
        decisions: as of `backtest_edits`.
        questions: as of `backtest_edits`.
        shown: as of `backtest_edits`.

    Raises:
        Unavailable: the database does not answer.
    """
    now = clock.now()
    since = now - timedelta(days=days)
    with gate.database.reading() as session:
        recorded = collect_questions(
            session, targets, since, decisions=decisions, questions=questions
        )
    found = gate.compute(run_backtest, recorded.found, before, after, now)
    remarks = [*recorded.remarks, *_list_left(found)]
    return BacktestBody(
        summary=summarise(found),
        counts=_count_effects(found),
        groups=[_to_group(group, shown) for group in found.groups],
        changes=[
            msgspec.convert(change.to_json(), ChangeBody)
            for edit in edits
            if (change := compare_document(edit.before, edit.after))
        ],
        days=days,
        since=since,
        questions=found.questions,
        decisions=found.decisions,
        complete=not remarks,
        remarks=remarks,
        matrix_revision=before.revision,
        facts=before.facts.digest,
    )


def plan_edits(
    gate: Gate, sources: Sequence[Source], deleted: Sequence[tuple[Kind, str]] = ()
) -> list[Edit]:
    """Return the edits that files and deletions would make; equal documents make none.

    Args:
        gate: with the current matrix.
        sources: documents to create or change.
        deleted: documents to delete, by kind and name.

    Raises:
        ManyProblems: every mistake in the documents, with file, line and path.
        NotFound: a document to delete does not exist.
        BadInput: a document is both stored and deleted.
    """
    with gate.database.reading() as session:
        reader = gate.matrix.open_reader(session, force=True)
        read = reader.read_files(sources) if sources else []
        _, edits = imports.plan_import(session, read)
        stored = documents.find_documents(session, deleted)
    return [*edits, *_delete(stored, deleted, read)]


def _delete(
    stored: dict[tuple[Kind, str], Document],
    deleted: Sequence[tuple[Kind, str]],
    read: Iterable[Document],
) -> list[Edit]:
    written = {key_of(document) for document in read}
    for kind, name in deleted:
        if (kind, name) not in stored:
            raise NotFound(f"{kind} {name!r} does not exist", field="delete", value=name)
        if (kind, name) in written:
            problem = f"the {kind} {name} is both written and deleted"
            raise BadInput(problem, field="delete", value=name)
    return [Edit(document, None) for document in stored.values()]


def summarise(found: Backtest) -> str:
    """Return a backtest in one line."""
    parts = [
        f"{count} {effect.replace('_', ' ')}"
        for effect in EFFECTS
        if (count := sum(len(group.changes) for group in found.of(effect)))
    ]
    total = f"{found.questions} question{'' if found.questions == 1 else 's'}"
    if not found.questions:
        return "nothing was asked in this period: nothing could be compared"
    decisions = f"{found.decisions} decision{'' if found.decisions == 1 else 's'}"
    return f"{', '.join(parts) or 'no answer changes'} (of {total}, {decisions})"


def _list_left(found: Backtest) -> list[str]:
    if not found.left:
        return []
    named = [f"{name}: {why}" for name, why in list(found.left.items())[:_MAX_LEFT]]
    return [f"{len(found.left)} questions were not decided: {shorten(named, _MAX_NAMED)}"]


def _count_effects(found: Backtest) -> BacktestCountsBody:
    return BacktestCountsBody(**{effect: _count(found, effect) for effect in EFFECTS})


def _count(found: Backtest, effect: Effect) -> EffectCountBody:
    changes = [change for group in found.of(effect) for change in group.changes]
    whole = ChangeGroup(effect, "matrix", None, tuple(changes))
    return EffectCountBody(len(changes), whole.decisions, whole.nodes)


def _to_group(group: ChangeGroup, shown: int) -> BacktestGroupBody:
    return BacktestGroupBody(
        effect=group.effect,
        cause=group.cause,
        rule=group.rule,
        name=name_rule(group.rule),
        message=group.changes[0].message,
        questions=len(group.changes),
        decisions=group.decisions,
        nodes=group.nodes,
        targets=list(group.targets),
        asked_by=list(group.asked_by),
        last=group.last,
        examples=[_to_change(change) for change in group.changes[:shown]],
    )


def _to_change(change: QuestionChange) -> QuestionChangeBody:
    asked = change.question
    return QuestionChangeBody(
        target=asked.target,
        stack=asked.stack,
        image=asked.image,
        pools=list(asked.pools),
        origin=asked.origin,
        verdict_id=asked.verdict_id,
        decisions=asked.decisions,
        asked_by=list(asked.asked_by),
        first=asked.first,
        last=asked.last,
        before=change.before,
        after=change.after,
        message=change.message,
        nodes=change.nodes,
    )


_MAX_RUNS = 2_000
_MAX_REPEATED = 1_000
"""Verdicts that may repeat a question, with another matrix or other evidence."""
_MAX_NAMES = 20
_encode = msgspec.json.Encoder(order="deterministic").encode


class RecordedQuestions(Struct, frozen=True):
    """The questions of a period, each once, the latest first.

    Attributes:
        remarks: what was left out, in words.
    """

    found: tuple[AskedQuestion, ...]
    remarks: tuple[str, ...] = ()


def collect_questions(
    session: Session,
    targets: Sequence[str] | None,
    since: datetime,
    *,
    decisions: int,
    questions: int,
) -> RecordedQuestions:
    """Return the questions about some targets since a time.

    Args:
        session: to read from.
        targets: their names; None: all targets.
        since: earliest time.
        decisions: most decisions to read, the newest.
        questions: most questions to return, the latest.
    """
    asked = list_asked_stacks(
        session, targets, since, most=decisions, verdicts=questions + _MAX_REPEATED
    )
    askers = list_askers(session, targets, since, most=decisions)
    groups: dict[bytes, AskedQuestion] = {}
    for one in asked.found:
        if one.body.get("basis") != "what-if":
            question = _read_decision(one, askers.get(one.verdict_id, ()))
            _add(groups, question)
    runs = list_run_questions(session, targets, since, most=_MAX_RUNS + 1)
    for run in runs[:_MAX_RUNS]:
        question = _read_run(run)
        if _key(question) not in groups or groups[_key(question)].origin == "run":
            _add(groups, question)
    remarks = []
    if not asked.complete:
        count = sum(one.count for one in asked.found)
        remarks.append(f"of the decisions since {since.date()}, only the latest {count} count")
    if len(runs) > _MAX_RUNS:
        remarks.append(f"of canary runs, the latest {_MAX_RUNS} count")
    found = sorted(groups.values(), key=lambda one: (one.last, one.verdict_id), reverse=True)
    if len(found) > questions:
        remarks.append(f"{len(found)} different questions: the latest {questions} were decided")
    return RecordedQuestions(tuple(found[:questions]), tuple(remarks))


def _add(groups: dict[bytes, AskedQuestion], question: AskedQuestion) -> None:
    known = groups.setdefault(_key(question), question)
    if known is not question:
        names = dict.fromkeys((*known.asked_by, *question.asked_by))
        groups[_key(question)] = replace(
            known,
            decisions=known.decisions + question.decisions,
            asked_by=tuple(names)[:_MAX_NAMES],
            first=min(known.first, question.first),
            last=max(known.last, question.last),
        )


def _key(question: AskedQuestion) -> bytes:
    return _encode((question.target, question.stack, question.image, question.pools))


def _read_decision(asked: AskedStack, askers: tuple[str, ...]) -> AskedQuestion:
    body = asked.body
    return AskedQuestion(
        target=asked.target,
        stack=body["stack"],
        verdict_id=asked.verdict_id,
        first=asked.first,
        last=asked.last,
        image=body.get("image"),
        pools=_read_pools(body),
        decisions=asked.count,
        asked_by=askers,
    )


def _read_pools(body: dict[str, Any]) -> tuple[str, ...]:
    """Return the pools that a question named; empty: it was about the whole target."""
    findings: Iterable[dict[str, Any]] = body.get("findings", ())
    if not any(finding["rule"] == some_pools.id for finding in findings):
        return ()
    return tuple(pool["name"] for pool in body["pools"])


def _read_run(run: RunRow) -> AskedQuestion:
    return AskedQuestion(
        target=run.target or "",
        stack=run.stack,
        verdict_id=run.id,
        first=run.created_at,
        last=run.created_at,
        image=run.image,
        pools=(run.pool,) if run.pool else (),
        asked_by=(run.asked_by,),
        origin="run",
    )
