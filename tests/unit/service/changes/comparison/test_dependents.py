"""What depends on an entry, from the decision log of a gate."""

from __future__ import annotations

from typing import Any

import pytest

from compatgate.errors import NotFound
from compatgate.kit.principal import Authorship
from compatgate.service.app import Rooms
from compatgate.service.changes.comparison.dependents import find_dependents

STACK = {"cuda": "12.4", "cudnn": "9.1.0", "torch": "2.4.1+cu124"}
BY = Authorship("tester", "for the test")


def ask(rooms: Rooms, **body: Any) -> None:
    rooms.gate.decide({"target": "prod-a100", "stack": STACK, **body}, asked_by="ci", source="rest")


def test_an_unknown_entry_is_named_with_its_field(rooms: Rooms) -> None:
    with pytest.raises(NotFound, match="did you mean torch24-cu124") as caught:
        find_dependents(rooms.gate, rooms.matrix, rooms.nodes, "torch24-cu12")
    assert caught.value.field == "name"


def test_a_question_is_evaluated_on_the_target_as_it_is_now(rooms: Rooms) -> None:
    document = rooms.matrix.get("Target", "prod-a100").document
    (pool,) = document["spec"]["pools"]
    spec = {**document["spec"], "pools": [pool, {**pool, "name": "spare"}]}
    rooms.matrix.change("Target", "prod-a100", {**document, "spec": spec}, BY)
    ask(rooms)
    ask(rooms, pools=["spare"])
    assert [
        one.lost
        for one in find_dependents(rooms.gate, rooms.matrix, rooms.nodes, "torch24-cu124").stacks
    ] == [True, True]
    rooms.matrix.change("Target", "prod-a100", document, BY)
    lost = [
        one.lost
        for one in find_dependents(rooms.gate, rooms.matrix, rooms.nodes, "torch24-cu124").stacks
    ]
    assert lost == [None, True], "nothing can be asked about a pool that is gone"


def test_targets_that_the_caller_does_not_reach_are_left_out(rooms: Rooms) -> None:
    ask(rooms)
    dependents = find_dependents(
        rooms.gate, rooms.matrix, rooms.nodes, "torch24-cu124", lambda name: name != "prod-a100"
    )
    assert (dependents.targets, dependents.stacks) == ([], [])
