"""Which runs blessed entries rest on, and what was asked for again; no database behind it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from compatgate.core.constraints import parse_constraint
from compatgate.core.facts.nvidia import Gpus
from compatgate.core.gpus import resolve_gpu
from compatgate.core.matrix import Entry, EntryIndex, Evidence, Matrix
from compatgate.core.request import CanaryPolicy, Policy, Pool, Target
from compatgate.core.versions import parse_version
from compatgate.service.runs.queue.models import RunRow
from compatgate.service.runs.queue.submission import (
    blessed_evidence,
    verification_candidates,
    verification_key,
)

WHEN = datetime(2026, 11, 21, 12, tzinfo=UTC)
SECONDS = int(WHEN.timestamp())


class Snapshot:
    """As much of a snapshot as is asked for."""

    def __init__(self, targets: list[Target], entries: list[Entry], runs: list[Evidence]) -> None:
        self.targets = {target.name: target for target in targets}
        self.matrix = Matrix(entries=EntryIndex(entries), evidence=tuple(runs))


def row(run: str = "run_1", **fields: Any) -> RunRow:
    nothing = dict.fromkeys(RunRow.__struct_fields__)
    known = {
        "id": run, "suite": "smoke", "state": "passed", "stack": {"cuda": "12.4"},
        "target": "prod", "created_at": WHEN,
    }  # fmt: skip
    return RunRow(**{**nothing, **known, **fields})


def passed(run: str, suite: str = "smoke", cuda: str = "12.4.1", **fields: Any) -> Evidence:
    known = {"outcome": "passed", "finished": SECONDS, **fields}
    components = {"cuda": parse_version("cuda", cuda)}
    driver = parse_version("driver", "535.183.01")
    return Evidence(run, suite, "L4", driver, components, **known)


def entry(name: str = "made", status: Any = "blessed", **fields: Any) -> Entry:
    components = {"cuda": parse_constraint("cuda", "12.4.*")}
    return Entry(**{
        "name": name, "targets": ("prod",), "components": components, "status": status, **fields,
    })  # fmt: skip


@pytest.fixture
def target(gpus: Gpus) -> Callable[..., Target]:
    def make(name: str = "prod", *, require: bool = True, suites: Any = ("smoke",)) -> Target:
        gpu = resolve_gpu("L4", gpus)
        pool = Pool(name="l4", gpu=gpu, driver=parse_version("driver", "535.183.01"))
        canary = CanaryPolicy(require=require, suites=suites)
        return Target(name, (pool,), Policy(canary=canary))

    return make


def rests(snapshot: Snapshot) -> list[tuple[str, str]]:
    return [(found.name, run.id) for found, run in blessed_evidence(snapshot)]  # type: ignore[arg-type]


def test_a_blessed_entry_rests_on_the_latest_passed_run_of_each_suite(
    target: Callable[..., Target],
) -> None:
    runs = [
        passed("run_old", finished=SECONDS - 99),
        passed("run_new"),
        passed("run_soak", suite="soak"),
        passed("run_other_suite", suite="else"),
        passed("run_failed", outcome="failed", finished=SECONDS + 9),
        passed("run_other_cuda", cuda="12.6.0", finished=SECONDS + 9),
    ]
    found = rests(Snapshot([target(suites=("smoke", "soak"))], [entry()], runs))
    assert found == [("made", "run_new"), ("made", "run_soak")]


@pytest.mark.parametrize("status", ["candidate", "deprecated", "revoked"])
def test_only_blessed_entries_are_verified(target: Callable[..., Target], status: str) -> None:
    assert rests(Snapshot([target()], [entry(status=status)], [passed("run_1")])) == []


def test_targets_that_ask_for_no_evidence_need_none_again(target: Callable[..., Target]) -> None:
    snapshot = Snapshot([target(require=False)], [entry()], [passed("run_1")])
    assert rests(snapshot) == []


def test_a_run_outside_a_container_is_repeated_where_it_counts(
    target: Callable[..., Target],
) -> None:
    runs = [passed("run_1"), passed("run_2", finished=SECONDS + 9, development=True)]
    assert rests(Snapshot([target()], [entry()], runs)) == [("made", "run_1")]


def test_a_run_that_two_targets_rest_on_is_named_once(target: Callable[..., Target]) -> None:
    both = entry(targets=("prod", "test"))
    found = rests(Snapshot([target(), target("test")], [both], [passed("run_1")]))
    assert found == [("made", "run_1")]


def test_runs_are_alike_whatever_became_of_them() -> None:
    assert verification_key(row()) == verification_key(
        row("run_2", state="failed", attempts=3, on_host="h")
    )
    assert verification_key(row()) != verification_key(row(image="registry.example/app:1"))
    assert verification_key(row()) != verification_key(row(pool="other"))


def test_the_latest_of_its_like_counts_and_is_underway_if_any_is() -> None:
    later = datetime(2026, 11, 22, 12, tzinfo=UTC)
    tried = [row(state="running"), row(created_at=later), row(suite="soak")]
    found = [(entry(), passed("run_1")), (entry(), passed("run_2"))]
    smoke, soak = verification_candidates(
        found, {"run_1": row(), "run_2": row("run_2", suite="soak")}, tried
    )
    assert (smoke.tried, smoke.underway) == (int(later.timestamp()), True)
    assert (soak.tried, soak.underway) == (SECONDS, False)


def test_what_is_shown_says_when_its_like_was_tried() -> None:
    found = [(entry(), passed("run_1")), (entry(), passed("run_of_another_database"))]
    (one,) = verification_candidates(found, {"run_1": row()}, [row(state="running")])
    assert (one.run, one.tried, one.underway) == ("run_1", SECONDS, True)
    (never,) = verification_candidates(found, {"run_1": replace(row(), suite="soak")}, [])
    assert (never.tried, never.underway) == (None, False)
