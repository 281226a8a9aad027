"""What snapshots around a run, and the kernel meanwhile, say of the GPU."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatgate.canary.health import Event, Gpu, Health, Snapshot, judge_health, read_log
from compatgate.canary.health.judge import _RANK
from compatgate.canary.health.snapshot import Process
from compatgate.core.facts import Facts

PCI = "0000:9b:00"
WELL = {
    "ecc_uncorrected_volatile": 0,
    "remapped_uncorrected": 0,
    "remap_pending": False,
    "remap_failed": False,
    "retired_pages": 0,
    "retirement_pending": False,
    "recovery": "none",
    "throttle": (),
    "processes": (),
}


def taken(*gpus: Gpu, **values: Any) -> Snapshot:
    found = gpus or (gpu(**values),)
    return Snapshot(datetime(2026, 11, 21, tzinfo=UTC), "550.54.15", found)


def gpu(pci: str = PCI, **values: Any) -> Gpu:
    return Gpu(0, uuid=f"GPU-{pci}", pci=pci, **{**WELL, **values})


def judged(
    before: Snapshot | None,
    during: tuple[Snapshot, ...],
    after: Snapshot | None,
    events: tuple[Event, ...] = (),
    **options: Any,
) -> Health:
    health = judge_health(before, during, after, events, **options)
    assert health is not None
    return health


@pytest.fixture
def event(facts: Facts) -> Any:
    def read(line: str) -> tuple[Event, ...]:
        return read_log(io.BytesIO(line.encode()), facts.xid)[0].events()

    return read


def xid(code: int, rest: str = "x", device: str = PCI) -> str:
    return f"NVRM: Xid (PCI:{device}): {code}, {rest}"


def test_a_gpu_to_which_nothing_happened_is_healthy() -> None:
    health = judged(taken(), (taken(utilisation=99),), taken())
    assert health == Health("healthy")


def test_nothing_observed_is_not_healthy() -> None:
    assert judge_health(None, (), None, ()) is None


def test_counters_that_a_gpu_does_not_have_say_nothing() -> None:
    bare = taken(Gpu(0, pci=PCI))
    assert judged(bare, (bare,), bare).state == "healthy"


@pytest.mark.parametrize(
    ("after", "reason", "action"),
    [
        ({"ecc_uncorrected_volatile": 2}, "uncorrected ECC errors during the run: 2", "reset"),
        ({"remapped_uncorrected": 1}, "rows remapped", "reset"),
        ({"retired_pages": 1}, "pages retired", "reset"),
        ({"remap_failed": True}, "could not be remapped", "RMA"),
        ({"recovery": "gpu_reset"}, "requests recovery", "reset"),
        ({"recovery": "node_reboot"}, "requests recovery", "reboot"),
        ({"recovery": "unknown_9"}, "unknown_9", "out of service"),
        ({"lost": True}, "does not answer", "reboot"),
    ],
)
def test_damage_during_the_run_is_sick_and_says_what_to_do(
    after: dict[str, Any], reason: str, action: str
) -> None:
    health = judged(taken(), (), taken(**after))
    assert health.state == "sick"
    assert reason in health.reasons[0]
    assert action in health.actions[0]


def test_a_gpu_that_is_gone_afterwards_is_sick() -> None:
    other = gpu("0000:01:00")
    assert judged(taken(gpu(), other), (), taken(other)).state == "sick"
    assert judged(taken(), (), None).state == "sick"


@pytest.mark.parametrize(
    "values",
    [
        {"remap_pending": True},
        {"retirement_pending": True},
        {"ecc_uncorrected_volatile": 3},
        {"throttle": ("hw_thermal_slowdown",)},
        {"throttle": ("gpu_idle", "sw_thermal_slowdown")},
    ],
)
def test_what_may_have_spoilt_the_run_is_suspect(values: dict[str, Any]) -> None:
    health = judged(taken(**values), (taken(**values),), taken(**values))
    assert health.state == "suspect"
    assert health.actions


def test_a_power_cap_under_load_and_an_idle_gpu_are_ordinary() -> None:
    busy = taken(throttle=("sw_power_cap", "gpu_idle", "applications_clocks_setting"))
    assert judged(taken(), (busy,), taken()).state == "healthy"


def test_a_slow_down_outside_of_the_run_concerns_nobody() -> None:
    hot = taken(throttle=("hw_thermal_slowdown",))
    assert judged(hot, (taken(),), hot).state == "healthy"


# --- other people's processes ---------------------------------------------------------------


def test_who_computed_before_the_run_and_during_it_makes_it_shared() -> None:
    earlier = taken(processes=(Process(99),))
    both = taken(processes=(Process(7), Process(99)))
    health = judged(earlier, (both,), taken())
    assert health.state == "shared"
    assert "99" in health.reasons[0]
    assert judged(taken(), (both,), taken()).state == "healthy"


def test_a_process_that_had_ended_before_the_run_is_nobody() -> None:
    assert judged(taken(processes=(Process(99),)), (taken(),), taken()).state == "healthy"


# --- what the kernel said -------------------------------------------------------------------


def test_a_fatal_error_is_sick_with_nvidias_action(event: Any) -> None:
    health = judged(taken(), (), taken(), event(xid(119)))
    assert health.state == "sick"
    assert "Xid 119" in health.reasons[0]
    assert health.actions[0].startswith("RESET_GPU")
    assert [e.xid for e in health.events] == [119]


def test_a_contained_memory_error_is_the_gpus_fault_not_the_workloads(event: Any) -> None:
    health = judged(taken(), (), taken(), event(xid(94, "pid=7, Contained")))
    assert health.state == "sick"


def test_an_application_error_of_the_run_itself_is_no_matter_of_health(event: Any) -> None:
    health = judged(taken(), (), taken(), event(xid(31, "pid=7, name=a, Fault")))
    assert health.state == "healthy"
    assert [e.xid for e in health.events] == [31]


def test_a_code_that_nobody_knows_is_suspect(event: Any) -> None:
    assert judged(taken(), (), taken(), event(xid(999))).state == "suspect"


def test_events_alone_are_enough(event: Any) -> None:
    assert judged(None, (), None, event(xid(79))).state == "sick"


@pytest.mark.parametrize(
    ("state", "sick"),
    [
        ({"sram_threshold_exceeded": True}, True),
        ({"sram_threshold_exceeded": False}, False),
        ({"retired_pages_total": 63}, True),
        ({"retired_pages_total": 62}, False),
        ({}, False),
    ],
)
def test_a_gpu_that_meets_a_threshold_for_replacement_is_sick(
    facts: Facts, state: dict[str, Any], sick: bool
) -> None:
    host = taken(gpu(**state))
    found = judged(host, (), host, rma=facts.xid.rma)
    assert (found.state == "sick") is sick
    assert any("RMA" in action for action in found.actions) is sick
    assert judged(host, (), host).state == "healthy"


def test_what_concerns_the_host_concerns_every_run(facts: Facts) -> None:
    line = b"NVRM: API mismatch: the client has the version 570.148.08, but\n"
    log, _ = read_log(io.BytesIO(line), facts.xid, None, facts.error_signatures)
    host = taken(gpu())
    found = judged(host, (), host, log.events(), gpus=[f"gpu-{PCI}"])
    assert (found.state, found.events[0].device) == ("sick", "host")


def test_only_the_runs_gpus_and_the_switches_concern_it(event: Any) -> None:
    elsewhere = event(xid(79, device="0000:01:00"))
    switch = event("nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 20034, Fatal, Link 28")
    host = taken(gpu(), gpu("0000:01:00", remap_failed=True))
    mine = {"gpus": [f"gpu-{PCI}"]}
    assert judged(host, (), host, elsewhere, **mine).state == "healthy"
    assert judged(host, (), host, elsewhere).state == "sick"
    assert judged(host, (), host, switch, **mine).state == "sick"
    assert judged(host, (), host, event(xid(79)), **mine).state == "sick"


# --- always ---------------------------------------------------------------------------------

states = st.fixed_dictionaries(
    {},
    optional={
        "ecc_uncorrected_volatile": st.none() | st.integers(0, 2),
        "remap_failed": st.none() | st.booleans(),
        "remap_pending": st.none() | st.booleans(),
        "recovery": st.sampled_from([None, "none", "gpu_reset"]),
        "throttle": st.none() | st.sampled_from([(), ("hw_slowdown",), ("sw_power_cap",)]),
        "processes": st.none() | st.sampled_from([(), (Process(7),), (Process(99),)]),
        "lost": st.booleans(),
    },
)


@given(states, st.lists(states, max_size=2), states)
def test_the_same_observations_give_the_same_answer_with_reasons_and_as_json(
    before: dict[str, Any], during: list[dict[str, Any]], after: dict[str, Any]
) -> None:
    seen = taken(**before), tuple(taken(**d) for d in during), taken(**after)
    health = judged(*seen)
    assert health == judged(*seen)
    assert (health.state == "healthy") == (not health.reasons) == (not health.actions)
    assert msgspec.convert(msgspec.to_builtins(health), Health) == health
    assert health.state in _RANK
