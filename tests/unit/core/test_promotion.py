"""What evidence means for entries, on data."""

import pytest

from compatgate.core.constraints import parse_constraint
from compatgate.core.entry_evidence import disproves, find_contradiction, index_runs
from compatgate.core.entry_evidence import judge_candidate as standing_of
from compatgate.core.matrix import Entry, Evidence
from compatgate.core.request import CanaryPolicy, Policy, Target
from compatgate.core.versions import parse_version

NOW = 1_790_000_000
DAY = 86400
SKU = "A100-SXM4-80GB"
DRIVER = "535.183.01"


def entry(targets=("t",), gpus=(), status="candidate", **components):
    components = components or {"cuda": "12.4.*", "torch": "~=2.4.0"}
    return Entry(
        "e", targets, {c: parse_constraint(c, v) for c, v in components.items()}, status, gpus=gpus
    )


def run(run_id, suite="smoke", outcome="passed", *, ago=DAY, driver=DRIVER, sku=SKU, **fields):
    components = fields.pop("components", {"cuda": "12.4.1", "torch": "2.4.1+cu124"})
    measured = {c: parse_version(c, v) for c, v in components.items()}
    version = parse_version("driver", driver)
    return Evidence(run_id, suite, sku, version, measured, outcome, NOW - ago, **fields)


def standing(entry, targets, runs, now):
    return standing_of(entry, targets, index_runs(runs), now)


@pytest.fixture
def target(pool_of):
    def make(name="t", *pools, **policy):
        found = tuple(pool_of(pool) for pool in pools or (f"driver={DRIVER},gpu={SKU}",))
        return Target(name, found, Policy(canary=CanaryPolicy(**policy)))

    return make


def test_a_candidate_needs_every_suite_of_its_policy_soak_included(target):
    lab = target(suites=("smoke", "dl-core"), soak=("soak",))
    found = standing(entry(), [lab], [run("a"), run("b", "soak")], NOW)
    assert (found.state, [need.suite for need in found.needs]) == ("waiting", ["dl-core"])
    found = standing(entry(), [lab], [run("a"), run("b", "soak"), run("c", "dl-core")], NOW)
    assert (found.state, set(found.runs), found.needs) == ("ready", {"a", "b", "c"}, ())


def test_it_must_have_passed_on_every_sku_and_driver_that_it_is_for(target):
    lab = target("t", f"driver={DRIVER},gpu={SKU}", f"driver={DRIVER},gpu=L4")
    found = standing(entry(), [lab], [run("a")], NOW)
    assert [need.sku for need in found.needs] == ["L4"]
    assert standing(entry(gpus=(SKU,)), [lab], [run("a")], NOW).state == "ready"
    newer = target("t", f"driver={DRIVER},gpu={SKU}", f"driver=550.54.15,gpu={SKU}")
    assert [n.driver for n in standing(entry(), [newer], [run("a")], NOW).needs] == ["550.54.15"]
    only = entry(driver="<540", cuda="12.4.*")
    assert standing(only, [newer], [run("a")], NOW).state == "ready"


def test_a_candidate_for_a_whole_gpu_needs_no_run_on_a_slice(target):
    lab = target("t", f"driver={DRIVER},gpu={SKU}", f"driver={DRIVER},gpu={SKU}-MIG-1g.10gb")
    assert standing(entry(gpus=(SKU,)), [lab], [run("a")], NOW).state == "ready"
    assert [need.sku for need in standing(entry(), [lab], [run("a")], NOW).needs] == [
        f"{SKU}-MIG-1g.10gb"
    ]


def test_a_failure_on_a_slice_says_nothing_of_an_entry_for_the_whole_gpu(target):
    lab = target("t", f"driver={DRIVER},gpu={SKU}", f"driver={DRIVER},gpu={SKU}-MIG-1g.10gb")
    failed = run("b", outcome="failed", sku=f"{SKU}-MIG-1g.10gb")
    assert find_contradiction(failed, entry(gpus=(SKU,), status="blessed"), [lab]) is None
    assert find_contradiction(failed, entry(status="blessed"), [lab]) is not None


def test_suites_must_have_passed_with_the_same_components(target):
    lab = target(suites=("smoke", "dl-core"))
    older = {"cuda": "12.4.1", "torch": "2.4.0+cu124"}
    runs = [run("a"), run("b", "dl-core", components=older)]
    assert standing(entry(), [lab], runs, NOW).state == "waiting"
    assert standing(entry(), [lab], [*runs, run("c", components=older)], NOW).state == "ready"


@pytest.mark.parametrize(
    "other",
    [
        {"ago": 31 * DAY},
        {"driver": "550.54.15"},
        {"sku": "L4"},
        {"sku": f"{SKU}-MIG-1g.10gb"},
        {"outcome": "inconclusive"},
        {"development": True},
        {"components": {"cuda": "12.5.0", "torch": "2.4.1+cu124"}},
        {"components": {"cuda": "12.4.1"}},
        {"components": {}},
    ],
)
def test_a_run_that_is_old_or_about_something_else_does_not_count(target, other):
    assert standing(entry(), [target()], [run("a", **other)], NOW).state == "waiting"


def test_the_latest_run_of_a_suite_speaks(target):
    passed, failed = run("a", ago=2 * DAY), run("b", outcome="failed")
    found = standing(entry(), [target()], [passed, failed], NOW)
    assert (found.state, [need.failed for need in found.needs]) == ("failed", ["b"])
    again = [passed, failed, run("c", ago=0)]
    assert standing(entry(), [target()], again, NOW).state == "ready"


def test_a_failure_of_any_stack_that_it_allows_stands_in_the_way(target):
    other = run("b", outcome="failed", components={"cuda": "12.4.0", "torch": "2.4.0+cu124"})
    assert standing(entry(), [target()], [run("a"), other], NOW).state == "failed"


def test_an_entry_that_is_for_no_pool_is_never_ready(target):
    assert standing(entry(), [], [run("a")], NOW).state == "waiting"
    assert standing(entry(("other",)), [target()], [run("a")], NOW).state == "waiting"
    assert standing(entry(gpus=("L4",)), [target()], [run("a")], NOW).state == "waiting"
    assert not standing(entry(), [], [], NOW).automatic


def test_the_gate_blesses_by_itself_only_where_every_target_agrees(target):
    one, two = target("a", promote="automatic"), target("b")
    assert standing(entry(("*",)), [one], [run("x")], NOW).automatic
    assert not standing(entry(("*",)), [one, two], [run("x")], NOW).automatic


def test_a_failed_run_contradicts_an_entry_that_it_speaks_of(target):
    failed = run("a", outcome="failed")
    found = find_contradiction(failed, entry(status="blessed"), [target()])
    assert (found.targets, found.revoke) == (("t",), False)
    assert find_contradiction(run("a"), entry(), [target()]) is None
    for other in ({"driver": "550.54.15"}, {"sku": "L4"}, {"development": True}):
        assert find_contradiction(run("a", outcome="failed", **other), entry(), [target()]) is None


def test_it_is_revoked_for_suites_of_the_policy_only(target):
    strict = target(on_failure="revoke", suites=("smoke",), soak=("soak",))
    for suite, revoked in (("smoke", True), ("soak", True), ("dl-core", False)):
        failed = run("a", suite, "failed")
        assert find_contradiction(failed, entry(), [strict]).revoke is revoked


def test_a_passed_run_takes_back_what_the_same_one_said():
    drivers = [parse_version("driver", DRIVER)]
    failed = run("a", outcome="failed")
    assert disproves(run("b"), failed, drivers, DAY)
    assert not disproves(run("b", "dl-core"), failed, drivers, DAY)
    assert not disproves(run("b", sku="L4"), failed, drivers, DAY)
    assert not disproves(run("b", components={"cuda": "12.4.1"}), failed, drivers, DAY)
    newer = run("b", driver="550.54.15")
    assert not disproves(newer, failed, drivers, DAY)
    assert disproves(newer, failed, [newer.driver], DAY)  # nobody has the older driver any more
