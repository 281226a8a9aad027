"""A run is refused where a GPU cannot do what a workload, the stack or the entry needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from canary_runs import DRIVER, GPU, STACK, host, suites
from msgspec.structs import replace

from compatgate.canary.workloads import Library
from compatgate.core.needs import parse_needs
from compatgate.errors import BadInput
from compatgate.kit.principal import Authorship
from compatgate.service.app import Rooms
from compatgate.service.runs.queue.schemas import RunRequest

Submit = Callable[..., str]


def needing(text: str) -> Library:
    """The suites of these tests, whose one-GPU workload needs this."""
    library = suites()
    library.workloads["gemm"] = replace(library.workloads["gemm"], needs=parse_needs(text))
    return library


def test_a_workload_that_needs_fp8_is_refused_on_an_a100(rooms: Rooms, submit: Submit) -> None:
    rooms.runs.catalogue = lambda: needing("fp8")
    with pytest.raises(BadInput, match="workload gemm cannot run there") as raised:
        submit("dl-core")
    assert "does not compute in FP8" in raised.value.problem
    assert (raised.value.field, raised.value.value) == ("pool", "a100")
    rooms.runs.catalogue = lambda: needing("bf16+30GB")
    assert submit("dl-core")


def test_the_stack_and_the_entry_state_needs_as_well(
    rooms: Rooms, submit: Submit, by: Authorship
) -> None:
    with pytest.raises(BadInput, match="the stack cannot run there"):
        submit("dl-core", stack={**STACK, "needs": "900GiB"})
    entry: dict[str, Any] = {
        "apiVersion": "compatgate.dev/v1",
        "kind": "Entry",
        "metadata": {"name": "llm"},
        "spec": {
            "targets": ["prod"],
            "components": {"cuda": "12.4.*"},
            "status": "candidate",
            "needs": ["nvfp4"],
        },
    }
    rooms.matrix.create("Entry", entry, by)
    assert rooms.gate.snapshot().entries["llm"].needs == parse_needs("nvfp4")
    with pytest.raises(BadInput, match="entry llm cannot run there"):
        submit("dl-core", entry="llm")


def test_the_pools_that_can_are_named(
    rooms: Rooms, submit: Submit, by: Authorship, target_body: Callable[..., dict[str, Any]]
) -> None:
    pools = [
        {"name": "a100", "gpu": GPU, "driver": DRIVER},
        {"name": "h100", "gpu": "H100-SXM5-80GB", "driver": DRIVER},
    ]
    rooms.matrix.create("Target", target_body("mixed", pools=pools), by)
    rooms.runs.queue.register("w1", [host(), host("h100-1", gpu="H100-SXM5-80GB")])
    rooms.runs.catalogue = lambda: needing("fp8")
    with pytest.raises(BadInput) as raised:
        submit("dl-core", target="mixed")
    assert "h100" in raised.value.hint
    asked = RunRequest("dl-core", target="mixed", pool="h100", stack=STACK)
    assert [run.pool for run in rooms.runs.submit(asked, by="tester")] == ["h100"]


def test_an_entry_with_an_unknown_need_is_refused(rooms: Rooms, by: Authorship) -> None:
    for needs in (["fp9"], ["60"], ["fp8", "fp8"], ["40GB", "60GB"]):
        body = {
            "apiVersion": "compatgate.dev/v1",
            "kind": "Entry",
            "metadata": {"name": "bad"},
            "spec": {
                "targets": ["prod"],
                "components": {"cuda": "12.4.*"},
                "status": "candidate",
                "needs": needs,
            },
        }
        with pytest.raises(BadInput) as raised:
            rooms.matrix.create("Entry", body, by)
        assert "needs" in str(raised.value), needs


def test_an_entry_names_no_compiler(rooms: Rooms, by: Authorship) -> None:
    body = {
        "apiVersion": "compatgate.dev/v1",
        "kind": "Entry",
        "metadata": {"name": "bad"},
        "spec": {"targets": ["prod"], "components": {"gcc": "13.*"}, "status": "candidate"},
    }
    with pytest.raises(BadInput, match="no entry names it"):
        rooms.matrix.create("Entry", body, by)
