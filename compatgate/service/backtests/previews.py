"""Tell of a planned import what a list of changed fields does not show.

A blessing may lack canary runs that a policy asks for, and a waiver may let more through than the
stack that it is meant for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from compatgate.documents.specs import WaiverDoc
from compatgate.service.backtests.schemas import BacktestBody
from compatgate.service.backtests.service import backtest_edits
from compatgate.service.matrix.blessing import EntryNeed, assess_evidence
from compatgate.service.matrix.revisions import Edit
from compatgate.service.matrix.schemas import (
    ImportPreviewBody,
    LetThroughBody,
    NeededEvidenceBody,
    WaiverScopeBody,
)

if TYPE_CHECKING:
    from compatgate.service.gate.service import Gate

_MAX_WAIVERS = 10
_MAX_NEEDS = 1_000
_DECISIONS = 20_000
_QUESTIONS = 1_000
_SHOWN = 20


def preview_import(gate: Gate, edits: Sequence[Edit]) -> ImportPreviewBody:
    """Return the evidence that edits lack, and what each of their waivers lets through.

    Args:
        gate: with the current matrix and the decision log.
        edits: of the import; they are not stored.

    Raises:
        Unavailable: the database does not answer.
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
        needs=[_describe_need(need) for need in needs[:_MAX_NEEDS]],
        waivers=[_find_scope(gate, edit) for edit in waivers[:_MAX_WAIVERS]],
        remarks=remarks,
    )


def _describe_need(need: EntryNeed) -> NeededEvidenceBody:
    run = need.run
    return NeededEvidenceBody(
        need.entry, run.target, run.sku, run.driver, run.suite, run.failed, need.required
    )


def _find_scope(gate: Gate, edit: Edit) -> WaiverScopeBody:
    """Return what one waiver alone lets through: other edits may change the same answers."""
    found = backtest_edits(gate, [edit], decisions=_DECISIONS, questions=_QUESTIONS, shown=_SHOWN)
    allowed = found.counts.newly_allowed
    return WaiverScopeBody(
        name=edit.document.metadata.name,
        days=found.days,
        stacks=allowed.questions,
        decisions=allowed.decisions,
        nodes=allowed.nodes,
        examples=_list_examples(found),
        remarks=found.remarks,
    )


def _list_examples(found: BacktestBody) -> list[LetThroughBody]:
    return [
        LetThroughBody(
            one.target, one.stack, one.image, one.decisions, one.nodes, one.asked_by, one.verdict_id
        )
        for group in found.groups
        if group.effect == "newly_allowed"
        for one in group.examples
    ][:_SHOWN]
