"""Hints for misspelt names are good, and cost a bounded number of comparisons."""

from __future__ import annotations

from contextvars import copy_context

from compatgate.core import near_names as module
from compatgate.core.near_names import begin_budget, near_names

KNOWN = ["cudnn", "cublas", "nccl"]


def test_the_nearest_names_come_first() -> None:
    assert near_names("cudn", KNOWN) == ["cudnn"]
    assert near_names("zebra", KNOWN) == []


def test_a_name_beyond_any_slip_is_not_compared() -> None:
    assert near_names("cudnn" * 20, ["cudnn" * 20]) == []
    assert near_names("cudn", [*KNOWN, *map(str, range(6000))]) == []


def test_a_request_pays_for_a_bounded_number_of_comparisons() -> None:
    def request() -> list[list[str]]:
        begin_budget(10)
        return [near_names("cudn", KNOWN) for _ in range(40_000)]

    found = copy_context().run(request)
    assert found[:4] == [["cudnn"], ["cudnn"], ["cudnn"], []]
    assert not any(found[3:])


def test_a_command_has_no_budget() -> None:
    def command() -> None:
        module._left.set(None)
        assert all(near_names("cudn", KNOWN) for _ in range(20))

    copy_context().run(command)
