"""What one verdict may take of the database."""

from __future__ import annotations

import json
import random
import string
from typing import Any

import pytest

from compatgate.errors import RequestTooLarge
from compatgate.service.app import Rooms, open_rooms
from compatgate.service.gate.questions.decider import MAX_STORED_BYTES
from compatgate.service.gate.questions.verdict_bodies import pack_body

POOL = {"driver": "535.104.05", "gpu": "A100-SXM4-80GB"}
chance = random.Random(7)


def noise(length: int) -> str:
    """Return text that nothing compresses."""
    return "".join(chance.choices(string.ascii_lowercase + string.digits, k=length))


WIDE: dict[str, Any] = {
    "packages": {noise(90): f"1.0+{noise(200)}" for _ in range(250)},
    "open": {"open": [noise(900) for _ in range(900)]},
    "conflicts": {"conflicts": [noise(400) for _ in range(100)]},
    "unread": {"unread": [noise(40) for _ in range(1000)]},
    "wheels": {"wheels": {noise(20): {"file": noise(900)} for _ in range(100)}},
    "unmeasured": {"unmeasured": {noise(900): noise(900) for _ in range(100)}},
    "measured": {
        "measured": {"torch": {"libraries": [{"path": noise(90)} for _ in range(900)]}},
    },
}


@pytest.fixture(scope="module")
def rooms(tmp_path_factory: pytest.TempPathFactory) -> Rooms:
    return open_rooms(str(tmp_path_factory.mktemp("gate") / "gate.db"))


def evaluate(rooms: Rooms, question: dict[str, Any]) -> int:
    """Return the bytes that the verdict takes."""
    asked = json.dumps({"pool": POOL, **question}).encode()
    answer = rooms.gate.evaluate(asked, asked_by="t", source="rest").answer
    return len(pack_body(answer.body.decode()))


@pytest.mark.parametrize("name", WIDE)
def test_a_question_that_would_fill_the_database_is_refused(rooms: Rooms, name: str) -> None:
    with pytest.raises(RequestTooLarge) as caught:
        evaluate(rooms, {"stack": {"cuda": "12.4", **WIDE[name]}})
    assert caught.value.field == "stack"
    assert f"at most {MAX_STORED_BYTES}" in caught.value.problem


def test_the_largest_field_is_named(rooms: Rooms) -> None:
    with pytest.raises(RequestTooLarge) as caught:
        evaluate(rooms, {"stack": {"cuda": "12.4"}, "set": WIDE["packages"]})
    assert caught.value.field == "set"


@pytest.mark.parametrize(
    "stack",
    [
        {noise(8): noise(1) for _ in range(250)},
        {noise(20): f"1.0+{noise(40)}" for _ in range(180)},
        {noise(90): f"1.0+{noise(200)}" for _ in range(55)},
        {"open": [noise(8) for _ in range(1000)]},
        {"unread": [noise(150) for _ in range(100)]},
        {"conflicts": [noise(15) for _ in range(800)]},
    ],
    ids=range(6),
)
def test_the_sentences_about_an_accepted_question_take_less_than_it(
    rooms: Rooms, stack: dict[str, Any]
) -> None:
    stack = {key: f"1.{ord(value)}" if isinstance(value, str) and len(value) == 1 else value
             for key, value in stack.items()}  # fmt: skip
    assert evaluate(rooms, {"stack": {"cuda": "12.4", **stack}}) <= 1.5 * MAX_STORED_BYTES


def test_the_records_of_a_large_image_are_accepted(rooms: Rooms) -> None:
    libraries = [
        {"path": f"torch/lib/module_{n}.so", "sass": {"sm_80": n, "sm_90": 2 * n}}
        for n in range(900)
    ]
    stack = {"cuda": "12.4", "measured": {"torch": {"libraries": libraries}}}
    assert len(json.dumps(stack)) > 3 * MAX_STORED_BYTES
    assert evaluate(rooms, {"stack": stack}) < MAX_STORED_BYTES
