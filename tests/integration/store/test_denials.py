"""What was denied most, on every database."""

from __future__ import annotations

from compatgate.service.gate.service import Gate

DENIED = {"target": "inference-l4", "stack": {"cuda": "12.4", "arch": "sm_70"}}


def test_verdicts_that_denied_are_counted_and_others_are_not(stocked: Gate) -> None:
    for _ in range(3):
        denied = stocked.decide(DENIED, asked_by="ci", source="rest")
    other = {**DENIED, "stack": {"cuda": "12.4", "arch": "sm_60"}}
    stocked.decide(other, asked_by="ci", source="rest")
    allowed = {"target": "dev-rtx", "stack": {"cuda": "12.4", "arch": "sm_89"}}
    stocked.decide(allowed, asked_by="ci", source="rest")
    found = stocked.history.most_denied(7)
    assert next((row.verdict_id, row.count) for row in found) == (denied.id, 3)
    assert len(found) == 2
    assert found[0].target == "inference-l4"
    assert len(stocked.history.most_denied(7, limit=1)) == 1


def test_an_empty_log_has_none(gate: Gate) -> None:
    assert gate.history.most_denied(7) == []
