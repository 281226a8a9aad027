"""How fresh evidence is, for each suite on each SKU and driver of a target."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from compatgate.core.gpus import resolve_gpu
from compatgate.core.matrix import Evidence
from compatgate.core.request import CanaryPolicy, Policy, Pool, Target
from compatgate.core.versions import parse_version
from compatgate.service.runs.evidence.pools import assess_freshness

NOW, DAY = 2_000_000_000, 86400
POLICY = CanaryPolicy(require=True, max_age_s=30 * DAY, suites=("smoke",), soak=("soak",))


@pytest.fixture
def target(gpus) -> Target:
    def pool(name: str, gpu: str, driver: str) -> Pool:
        return Pool(name, resolve_gpu(gpu, gpus), parse_version("driver", driver))

    pools = (pool("a", "L4", "580.95.05"), pool("b", "L4", "580.95.05"), pool("c", "T4", "535.1.1"))
    return Target("prod", pools, Policy(canary=POLICY))


def _run(name="run_1", days=1, sku="L4", driver="580.95.05", outcome="passed", **other) -> Evidence:
    components = {"torch": parse_version("torch", "2.8.0")}
    return Evidence(
        name, other.pop("suite", "smoke"), sku, parse_version("driver", driver), components,
        outcome, NOW - days * DAY, **other,
    )  # fmt: skip


def _smoke_on_l4(target, *runs):
    return next(
        f for f in assess_freshness(target, runs, NOW) if (f.suite, f.sku) == ("smoke", "L4")
    )


def test_pools_that_are_alike_share_a_line_and_every_suite_has_one(target):
    found = assess_freshness(target, [], NOW)
    assert [(f.suite, f.sku, f.pools, f.required) for f in found] == [
        ("smoke", "L4", ("a", "b"), True),
        ("smoke", "T4", ("c",), True),
        ("soak", "L4", ("a", "b"), False),
        ("soak", "T4", ("c",), False),
    ]
    assert {f.state for f in found} == {"missing"}


def test_a_run_counts_until_it_is_too_old(target):
    found = _smoke_on_l4(target, _run(days=29))
    assert (found.state, found.counting, found.expires) == ("passed", 1, NOW + DAY)
    old = _smoke_on_l4(target, _run(days=31))
    assert (old.state, old.counting, old.expires) == ("stale", 0, None)


def test_another_driver_is_not_the_same(target):
    found = _smoke_on_l4(target, _run(driver="570.26"))
    assert found.state == "stale"
    assert found.why == "it was on driver 570.26, the pool has 580.95.05"
    own = _smoke_on_l4(target, _run("run_own", days=3), _run("run_other", driver="570.26"))
    assert own.run is not None
    assert own.run.id == "run_own"


def test_the_newest_decides_and_a_failure_is_said(target):
    found = _smoke_on_l4(target, _run(days=2), _run("run_2", outcome="failed"))
    assert (found.state, found.counting) == ("failed", 1)


def test_what_does_not_count_is_not_evidence(target):
    inconclusive, development = _run(outcome="inconclusive"), _run(development=True)
    assert _smoke_on_l4(target, inconclusive, development).state == "missing"
    lenient = replace(POLICY, accept_development=True)
    accepting = replace(target, policy=Policy(canary=lenient))
    assert _smoke_on_l4(accepting, development).state == "passed"


def test_an_imported_source_counts_for_the_suite_that_names_it_and_not_for_soaking(target):
    run = _run(suite="nvcre@lab")
    assert _smoke_on_l4(target, run).state == "missing"
    named = (("smoke", ("nvcre@lab",)), ("soak", ("nvcre@lab",)))
    trusting = replace(target, policy=Policy(canary=replace(POLICY, imported=named)))
    assert _smoke_on_l4(trusting, run).state == "passed"
    newer = _run("run_2", days=0, suite="nvcre@lab", outcome="failed")
    assert _smoke_on_l4(trusting, _run(), run, newer).state == "failed"
    soak = [f for f in assess_freshness(trusting, [run], NOW) if f.suite == "soak"]
    assert {f.state for f in soak} == {"missing"}
