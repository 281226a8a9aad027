"""What depends on an entry, from the decision log of a gate."""

from __future__ import annotations

from typing import Any

import pytest

from compatgate.errors import NotFound
from compatgate.service.gate.comparison.dependents import find_dependents
from compatgate.service.gate.questions.service import Gate
from compatgate.service.matrix.documents.service import Authorship

STACK = {"cuda": "12.4", "cudnn": "9.1.0", "torch": "2.4.1+cu124"}
BY = Authorship("tester", "for the test")


def ask(gate: Gate, **body: Any) -> None:
    gate.decide({"target": "prod-a100", "stack": STACK, **body}, asked_by="ci", source="rest")


def test_an_unknown_entry_is_named_with_its_field(gate: Gate) -> None:
    with pytest.raises(NotFound, match="did you mean torch24-cu124") as caught:
        find_dependents(gate, "torch24-cu12")
    assert caught.value.field == "name"


def test_a_question_is_evaluated_on_the_target_as_it_is_now(gate: Gate) -> None:
    document = gate.matrix.get("Target", "prod-a100").document
    (pool,) = document["spec"]["pools"]
    spec = {**document["spec"], "pools": [pool, {**pool, "name": "spare"}]}
    gate.matrix.change("Target", "prod-a100", {**document, "spec": spec}, BY)
    ask(gate)
    ask(gate, pools=["spare"])
    assert [one.lost for one in find_dependents(gate, "torch24-cu124").stacks] == [True, True]
    gate.matrix.change("Target", "prod-a100", document, BY)
    lost = [one.lost for one in find_dependents(gate, "torch24-cu124").stacks]
    assert lost == [None, True], "nothing can be asked about a pool that is gone"


def test_targets_that_the_caller_does_not_reach_are_left_out(gate: Gate) -> None:
    ask(gate)
    dependents = find_dependents(gate, "torch24-cu124", lambda name: name != "prod-a100")
    assert (dependents.targets, dependents.stacks) == ([], [])
