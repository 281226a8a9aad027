"""Evidence bound to GPU content, suite and image: each known way around it, and pooled reruns."""

from datetime import UTC, datetime, timedelta
from itertools import permutations

import pytest

from compatgate.core.binding import Binding, define_suite
from compatgate.core.constraints import parse_constraint
from compatgate.core.entry_evidence import (
    disproves,
    find_contradiction,
    index_runs,
    judge_candidate,
)
from compatgate.core.matrix import Entry, Evidence, Matrix
from compatgate.core.request import CanaryPolicy, Policy, Target
from compatgate.core.versions import parse_version

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
DAY = 86400
SKU, DRIVER = "A100-SXM4-80GB", "580.65.06"
POOL = f"driver={DRIVER},gpu={SKU}"
MEASURED = {"cuda": "12.4", "cudnn": "9.1.0.70", "torch": "2.4.1+cu124"}
STACK = {**MEASURED, "arch": ["sm_80"]}
ONE, TWO = (f"sha256:{digit * 64}" for digit in "12")
SUITE = define_suite({"gemm": "sha256:a"})


def run(run_id, outcome="passed", content=ONE, *, ago=1, components=MEASURED, **bound):
    driver = bound.pop("driver", DRIVER)
    bound = {"suite": SUITE.digest, "workloads": SUITE.workloads, "image": f"{content}"} | bound
    finished = int((NOW - timedelta(days=ago)).timestamp())
    return Evidence(
        run_id,
        "smoke",
        SKU,
        parse_version("driver", driver),
        {name: parse_version(name, text) for name, text in components.items()},
        outcome,
        finished,
        bound=Binding(content=content, **bound),
    )


def legacy(run_id, outcome="passed", *, ago=1):
    made = run(run_id, outcome, ago=ago)
    return Evidence(*(getattr(made, name) for name in made.__struct_fields__[:-1]))


@pytest.fixture
def judge(ask):
    """The canary findings of a question as (rule, message), with runs as evidence."""

    def judged(*runs, content=ONE, stack=STACK, image=None, suites=None, **policy):
        canary = CanaryPolicy(require=True, suites=("smoke",), max_age_s=30 * DAY, **policy)
        body = {**stack, "content": content} if content else stack
        verdict = ask(
            POOL,
            body,
            target="t",
            policy=Policy(canary=canary),
            matrix=Matrix(evidence=runs, suites=suites or {"smoke": SUITE}),
            now=NOW,
            **({"image": image} if image else {}),
        )
        return [(f.rule, f.message) for f in verdict.findings if f.rule.startswith("CG81")]

    return judged


def rules(found):
    return [rule for rule, _ in found]


def test_a_failure_of_one_image_denies_images_of_its_content_only(judge):
    runs = run("a"), run("b", "failed", TWO)
    assert judge(*runs) == []
    assert rules(judge(*runs, content=TWO)) == ["CG813"]


def test_the_pass_of_another_image_clears_no_failure(judge):
    runs = run("a", "failed", ago=3), run("b", content=TWO), run("c", content=TWO, ago=0)
    assert rules(judge(*runs)) == ["CG813"]


def test_an_image_that_was_never_run_needs_a_run_of_its_own(judge):
    ((rule, message),) = judge(run("a"), run("b"), content=TWO)
    assert rule == "CG811"
    assert "b, a tested images with other GPU content" in message or "a, b tested" in message


def test_a_stack_without_a_content_is_denied_by_every_failure_with_its_versions(judge):
    runs = run("a"), run("b", "failed", TWO)
    ((rule, message),) = judge(*runs, content=None)
    assert rule == "CG813"
    assert "1 of 2 passed" in message
    assert "name its image" in message
    assert judge(run("a"), run("b", content=TWO), content=None) == []


def test_the_run_of_a_framework_covers_no_stack_of_its_cuda_alone(judge):
    asked = {"cuda": "12.4", "arch": ["sm_80"]}
    assert rules(judge(run("a"), content=None, stack=asked)) == ["CG811"]


def test_a_content_does_not_cover_versions_that_the_run_did_not_measure(judge):
    claimed = {**STACK, "torch": "2.5.0+cu124"}
    assert rules(judge(run("a"), stack=claimed)) == ["CG811"]


def test_runs_of_unknown_content_cover_by_versions_until_one_of_the_content_is_known(judge):
    assert judge(run("a", content=None)) == []
    assert judge(legacy("a")) == []
    assert rules(judge(run("a", content=None), run("b", "failed", ago=2))) == ["CG813"]
    assert judge(legacy("a", "failed"), run("b", ago=2)) == []


def test_what_was_judged_before_bindings_counts_as_before(judge):
    assert judge(legacy("a", "failed", ago=2), legacy("b")) == []
    assert rules(judge(legacy("a", ago=2), legacy("b", "failed"))) == ["CG813"]


def test_a_redefined_suite_makes_its_evidence_stale_and_says_why(judge):
    now = define_suite({"gemm": "sha256:b"})
    ((rule, message),) = judge(run("a"), suites={"smoke": now})
    assert rule == "CG812"
    assert "suite smoke changed since the run (workload gemm changed)" in message
    fresh = run("b", suite=now.digest, workloads=now.workloads)
    assert judge(run("a", "failed"), fresh, suites={"smoke": now}) == []
    assert rules(judge(run("a", "failed"), suites={"smoke": now})) == ["CG813"]


@pytest.mark.parametrize("passes", range(6))
def test_reruns_give_one_answer_in_any_order_and_a_failure_stays(judge, passes):
    outcomes = ["passed"] * passes + ["failed"] * (5 - passes)
    found = set()
    for order in set(permutations(outcomes)):
        runs = [run(f"r{day}", outcome, ago=5 - day) for day, outcome in enumerate(order)]
        answers = judge(*runs)
        found.add(tuple(rules(answers)))
        if 0 < passes < 5:
            assert f"{passes} of 5 passed, and one failure denies" in answers[0][1]
    assert found == {() if passes == 5 else ("CG813",)}


def test_a_failure_leaves_the_pool_when_it_no_longer_counts(judge):
    assert judge(run("a", "failed", ago=31), run("b")) == []
    assert rules(judge(run("a", "failed", ago=29), run("b"))) == ["CG813"]
    assert rules(judge(run("a", "failed", ago=31))) == ["CG813"]
    assert rules(judge(run("a", "failed", ago=40), run("b", ago=31))) == ["CG812"]
    assert rules(judge(run("a", "failed", driver="535.104.05"), run("b"))) == []


def test_a_policy_may_bind_evidence_to_versions_or_to_the_image(judge):
    runs = run("a", images=(TWO,)), run("b", "failed", TWO, image=f"sha256:{'3' * 64}")
    assert rules(judge(*runs, bind="versions")) == ["CG813"]
    for digest, expected in ((ONE, []), (TWO, []), (f"sha256:{'3' * 64}", ["CG813"])):
        image = f"registry.example/app:1@{digest}"
        assert rules(judge(*runs, bind="image", image=image)) == expected, digest
    for image in (None, "registry.example/app:1", f"registry.example/app@sha256:{'4' * 64}"):
        ((rule, message),) = judge(*runs, bind="image", image=image)
        assert rule == "CG811"
        assert "this image (canary.bind: image)" in message


# --- entries -------------------------------------------------------------------------------


def entry(status="blessed", contents=()):
    components = {name: parse_constraint(name, text) for name, text in (("cuda", "12.4.*"),)}
    return Entry("e", ("t",), components, status, blessed_contents=contents)


@pytest.fixture
def target(pool_of):
    def make(**policy):
        return Target("t", (pool_of(POOL),), Policy(canary=CanaryPolicy(**policy)))

    return make


def test_only_a_failure_of_a_content_that_blessed_it_revokes_an_entry(target):
    strict = target(on_failure="revoke")
    for contents, failed, revoked in (
        ((), TWO, True),
        ((ONE,), ONE, True),
        ((ONE,), TWO, False),
        ((ONE,), None, False),
    ):
        found = find_contradiction(run("a", "failed", failed), entry(contents=contents), [strict])
        assert found.targets == ("t",)
        assert found.revoke is revoked, (contents, failed)


def test_a_candidate_is_blessed_by_runs_of_one_content(target):
    def standing(*runs, suites=("smoke",)):
        definitions = {"smoke": SUITE}
        lab = target(suites=suites)
        now = NOW.timestamp()
        return judge_candidate(entry("candidate"), [lab], index_runs(runs), now, definitions)

    ready = standing(run("a"), run("b", "failed", TWO))
    assert (ready.state, ready.runs, ready.contents) == ("ready", ("a",), (ONE,))
    assert standing(run("a", "failed", TWO)).state == "failed"
    assert standing(run("a", "failed", ago=3), run("b"), run("c", ago=0)).state == "failed"
    assert standing(run("a"), run("b", "failed", None)).state == "failed"
    other = {**MEASURED, "cuda": "12.4.0", "torch": "2.4.0+cu124"}
    assert standing(run("a"), run("b", "failed", TWO, components=other)).state == "failed"
    changed = run("a", suite="sha256:x", workloads={"gemm": "sha256:0"})
    assert standing(changed).state == "waiting"


def test_neither_a_rerun_nor_another_content_closes_a_warning():
    failed, drivers = run("a", "failed", ago=3), [parse_version("driver", DRIVER)]
    assert not disproves(run("b"), failed, drivers, 30 * DAY)
    assert not disproves(run("b", content=TWO), failed, drivers, DAY)
    assert not disproves(run("b", content=None), failed, drivers, DAY)
    assert disproves(run("b"), failed, drivers, DAY)
    assert disproves(run("b", suite="sha256:new"), failed, drivers, 30 * DAY)
    newer = run("b", driver="580.82.07")
    assert disproves(newer, failed, [newer.driver], 30 * DAY)
    assert not disproves(newer, failed, drivers, 30 * DAY)
