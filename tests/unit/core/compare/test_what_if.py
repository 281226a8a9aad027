"""What becomes of the blessed stacks of a target when its driver or GPU is another."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from msgspec.structs import replace

from compatgate.core.compare.what_if import WhatIf, what_if
from compatgate.core.constraints import parse_constraint
from compatgate.core.facts import Facts
from compatgate.core.matrix import Entry, EntryIndex, EntryStatus, Evidence, Matrix
from compatgate.core.request import CanaryPolicy, Policy, Pool, Target
from compatgate.core.versions import parse_version

TORCH = {"cuda": "12.4.*", "cudnn": "9.1.*", "torch": "~=2.4.0"}
Ask = Callable[..., WhatIf]


def entry(name: str = "e", status: EntryStatus = "blessed", **components: str) -> Entry:
    constraints = {key: parse_constraint(key, text) for key, text in components.items()}
    return Entry(name, ("t",), constraints, status)


def measured(**fields: Any) -> Evidence:
    components = {"cuda": "12.4.1", "cudnn": "9.1.0", "torch": "2.4.1+cu124"}
    fields = {
        "id": "run_1",
        "suite": "smoke",
        "sku": "A100-SXM4-80GB",
        "driver": parse_version("driver", "535.183.01"),
        "components": {c: parse_version(c, text) for c, text in components.items()},
        "outcome": "passed",
        "finished": 1_795_000_000,
    } | fields
    return Evidence(**fields)


@pytest.fixture
def ask(facts: Facts, now: datetime, pool_of: Callable[[str], Pool]) -> Ask:
    """Asks about a target with one A100 pool, or other pools."""

    def make(
        changes: dict[str, Any],
        *entries: Entry,
        policy: Policy | None = None,
        pools: tuple[str, ...] = ("driver=535.183.01,gpu=A100-SXM4-80GB",),
        evidence: tuple[Evidence, ...] = (),
    ) -> WhatIf:
        described = tuple(
            replace(pool_of(text), name=f"p{number}") for number, text in enumerate(pools)
        )
        target = Target("t", described, policy or Policy(require_entry=True))
        matrix = Matrix(7, EntryIndex(entries), (), evidence)
        return what_if(target, described, changes, facts=facts, matrix=matrix, now=now)

    return make


def test_a_driver_that_everything_works_with_breaks_nothing(ask: Ask) -> None:
    found = ask({"driver": "535.216.01"}, entry(driver=">=535,<536", **TORCH))
    assert (found.verdict, found.allowed) == ("pass", True)
    assert found.summary == "driver 535.216.01 on t breaks none of 1 entry"
    assert found.entries[0].change == "same"


def test_what_would_break_is_named_with_rule_message_and_fix(ask: Ask) -> None:
    found = ask({"driver": "470.256.02"}, entry("torch24", **TORCH))
    assert (found.verdict, found.allowed) == ("fail", False)
    assert found.summary == "driver 470.256.02 on t breaks 1 of 1 entry: torch24"
    broken = found.entries[0]
    assert (broken.change, broken.cause) == ("breaks", "facts")
    lost = broken.pools[0].lost[0]
    assert lost.rule == "CG101"
    assert lost.fixes[0].set == {"driver": ">=525.60.13"}


def test_what_gets_better_is_named_as_well(ask: Ask) -> None:
    found = ask({"driver": "580.95.05"}, entry(**TORCH))
    assert found.entries[0].change == "improves"
    assert "CG102" in {finding.rule for finding in found.entries[0].pools[0].gained}


def test_an_entry_blessed_for_the_old_driver_alone_has_to_be_blessed_again(ask: Ask) -> None:
    found = ask({"driver": "580.95.05"}, entry(driver=">=535,<536", **TORCH))
    broken = found.entries[0]
    assert (found.verdict, broken.cause) == ("fail", "matrix")
    lost = broken.pools[0].lost[0]
    assert lost.message.startswith("it is blessed with driver >=535,<536, and no entry blesses it")
    assert not any("driver" in fix.set for fix in lost.fixes), "no fix undoes the change"


def test_without_the_need_for_an_entry_the_facts_alone_decide(ask: Ask) -> None:
    found = ask({"driver": "580.95.05"}, entry(driver=">=535,<536", **TORCH), policy=Policy())
    assert found.verdict == "pass"


def test_an_unknown_driver_branch_is_never_a_pass(ask: Ask) -> None:
    found = ask({"driver": "999.10"}, entry(**TORCH))
    assert (found.verdict, found.allowed) == ("unknown", False)
    assert "is not known to work for 1 of 1 entry" in found.summary
    assert found.host[0].rule == "CG105"


def test_an_entry_that_pins_nothing_leaves_the_answer_open(ask: Ask) -> None:
    found = ask({"driver": "535.216.01"}, entry("good", **TORCH), entry("bare", driver=">=535"))
    assert found.verdict == "unknown"
    assert found.summary.endswith("is not known to work for 1 of 2 entries: bare")
    bare = next(e for e in found.entries if e.entry == "bare")
    assert "names no component" in bare.open[0]


def test_a_target_without_entries_cannot_be_answered_for(ask: Ask) -> None:
    found = ask({"driver": "535.216.01"})
    assert (found.verdict, found.allowed) == ("unknown", False)
    assert "no entry is blessed on it" in found.summary


def test_a_driver_that_does_not_drive_the_gpu_fails_whatever_is_blessed(ask: Ask) -> None:
    found = ask({"driver": "590.44.01"}, pools=("driver=580.95.05,gpu=V100-SXM2-32GB",))
    assert found.verdict == "fail"
    assert "CG105" in found.summary


@pytest.mark.parametrize("status", ["candidate", "revoked"])
def test_entries_that_nobody_runs_by_are_left_out(ask: Ask, status: EntryStatus) -> None:
    assert not ask({"driver": "470.256.02"}, entry(status=status, **TORCH)).entries


def test_deprecated_entries_are_still_in_use(ask: Ask) -> None:
    found = ask({"driver": "470.256.02"}, entry(status="deprecated", **TORCH))
    assert found.entries[0].change == "breaks"


def test_a_pool_that_fails_already_hides_no_other_that_begins_to(ask: Ask) -> None:
    pools = ("driver=470.57.02,gpu=A100-SXM4-80GB", "driver=535.183.01,gpu=A100-SXM4-80GB")
    found = ask({"driver": "470.256.02"}, entry(**TORCH), pools=pools)
    assert [pool.change for pool in found.entries[0].pools] == ["same", "breaks"]
    assert found.verdict == "fail"


def test_an_entry_for_another_gpu_does_not_concern_the_pool(ask: Ask) -> None:
    other = replace(entry(**TORCH), gpus=("L4",))
    assert not ask({"driver": "470.256.02"}, other).entries


def test_missing_evidence_does_not_hide_what_the_facts_say(ask: Ask) -> None:
    policy = Policy(require_entry=True, canary=CanaryPolicy(require=True))
    found = ask({"driver": "470.256.02"}, entry(**TORCH), policy=policy)
    assert (found.entries[0].change, found.entries[0].cause) == ("breaks", "facts")
    unknown = ask({"driver": "999.10"}, entry(**TORCH), policy=policy)
    assert unknown.verdict == "unknown"


def test_where_evidence_is_asked_for_it_has_to_be_had_on_the_new_driver(ask: Ask) -> None:
    policy = Policy(require_entry=True, canary=CanaryPolicy(require=True))
    found = ask({"driver": "535.216.01"}, entry(**TORCH), policy=policy, evidence=(measured(),))
    broken = found.entries[0]
    assert (broken.change, broken.cause) == ("breaks", "evidence")
    assert broken.pools[0].stack["torch"] == "2.4.1+cu124", "what was measured stands for it"
    assert broken.pools[0].lost[0].rule == "CG812"


def test_a_gpu_or_cuda_that_changes_is_answered_alike(ask: Ask) -> None:
    pools = ("driver=580.95.05,gpu=A100-SXM4-80GB",)
    gpu = ask({"gpu": "V100-SXM2-32GB"}, entry(cuda="13.0.*", torch="2.9.*"), pools=pools)
    assert gpu.entries[0].change == "breaks"
    cuda = ask({"cuda": "13.0"}, entry(**TORCH))
    assert "CG401" in {finding.rule for finding in cuda.entries[0].pools[0].lost}


@pytest.mark.parametrize(("mode", "allowed"), [("enforce", False), ("warn", True), ("audit", True)])
def test_the_policy_decides_what_becomes_of_it(ask: Ask, mode: Any, allowed: bool) -> None:
    policy = Policy(mode=mode, require_entry=True)
    found = ask({"driver": "470.256.02"}, entry(**TORCH), policy=policy)
    assert (found.verdict, found.allowed) == ("fail", allowed)


def test_the_worst_comes_first(ask: Ask) -> None:
    found = ask(
        {"driver": "525.147.05"},
        entry("a", **TORCH),
        entry("b", driver=">=535", cuda="12.2.*", torch="~=2.4.0"),
    )
    assert found.entries[0].entry == "b"


def test_what_pools_share_is_said_once(ask: Ask) -> None:
    pools = ("driver=580.95.05,gpu=L4", "driver=580.95.05,gpu=A100-SXM4-80GB")
    found = ask({"driver": "999.10"}, entry(**TORCH), pools=pools)
    assert [finding.pools for finding in found.host] == [("p0", "p1")]


def test_a_warning_that_a_failure_replaces_is_no_gain(ask: Ask) -> None:
    found = ask({"driver": "470.256.02"}, entry(**TORCH))
    assert not found.entries[0].pools[0].gained


def test_the_answer_has_the_pools_and_verdicts_of_both_sides(ask: Ask) -> None:
    found = ask({"driver": "470.256.02"}, entry(**TORCH))
    assert found.set == {"driver": "470.256.02"}
    drivers = found.before[0]["driver"], found.after[0]["driver"]
    assert drivers == ("535.183.01", "470.256.02")
    pool = found.entries[0].pools[0]
    assert (pool.before, pool.after, pool.change) == ("warn", "fail", "breaks")


def test_an_entry_that_the_change_makes_possible_is_a_gain(ask: Ask) -> None:
    newer = entry("newer", driver=">=580.65.06", cuda="13.0.*", torch="2.9.*")
    found = ask({"driver": "580.95.05"}, newer)
    assert found.entries[0].change == "improves"
    assert {"CG101", "CG801"} <= {finding.rule for finding in found.entries[0].pools[0].gained}


def test_an_entry_for_the_new_gpu_is_a_gain(ask: Ask) -> None:
    other = replace(entry(**TORCH), gpus=("L4",))
    found = ask({"gpu": "L4"}, other)
    assert (found.verdict, found.entries[0].change) == ("pass", "improves")


def test_what_was_measured_counts_before_what_an_entry_allows(ask: Ask) -> None:
    components = {"cuda": "12.4.0", "cudnn": "9.1.0", "torch": "2.4.0+cu124"}
    run = measured(components={c: parse_version(c, text) for c, text in components.items()})
    found = ask({"driver": "535.216.01"}, entry(**TORCH), evidence=(run, measured(finished=1)))
    assert found.entries[0].pools[0].stack == components


def test_entries_that_state_the_same_change_as_each_of_them_alone(ask: Ask) -> None:
    narrow = {**TORCH, "driver": ">=535,<536"}
    entries = [entry(f"open-{n}", **TORCH) for n in range(3)]
    entries += [entry(f"narrow-{n}", **narrow) for n in range(2)]
    entries += [entry("kept", "deprecated", **TORCH), entry("left", "candidate", **TORCH)]
    entries += [replace(entry("l4", **TORCH), gpus=("L4",)), entry("none", driver=">=535")]
    together = ask({"driver": "580.95.05"}, *entries)
    alone = {one.entry: one for e in entries for one in ask({"driver": "580.95.05"}, e).entries}
    assert {one.entry for one in together.entries} == alone.keys()
    assert "left" not in alone
    for one in together.entries:
        assert (one.status, one.open) == (alone[one.entry].status, alone[one.entry].open)
        assert [(p.pool, p.stack) for p in one.pools] == [
            (p.pool, p.stack) for p in alone[one.entry].pools
        ]
    changes = {one.entry: one.change for one in together.entries}
    assert changes["open-0"] == changes["open-1"] == changes["open-2"]
    assert changes["narrow-0"] == changes["narrow-1"]
