"""Candidate and reference in pairs, on an executor that measures what a test says."""

import random
from contextlib import contextmanager, nullcontext

import msgspec
import pytest
from engine_edges import ENV, Memory, Says, Script, exited, lines
from msgspec.structs import replace

from compatgate.canary.allowed_images import AllowedImages
from compatgate.canary.engine.drive import drive
from compatgate.canary.engine.pairs import check_pairs
from compatgate.canary.executors import PreparedJob
from compatgate.canary.executors.host_watch import HostObservation
from compatgate.canary.judge.paired.blocks import PAIRED_JUDGE
from compatgate.canary.judge.result import MetricJudgement
from compatgate.canary.judge.workload import WorkloadJudgement
from compatgate.canary.run import Against
from compatgate.errors import CompatgateError, InfrastructureError

REFERENCE, CANDIDATE = "registry.example/app:1", "registry.example/app:2"


class Host(Script):
    """A host whose images differ in speed; noise of a block comes from its name."""

    def __init__(self, ratio=1.0, noise=0.002, **behaviour):
        super().__init__()
        self.ratio, self.noise = ratio, noise
        self.behaviour = behaviour
        self.held = []

    runs_pairs = True

    def prepare(self, job, progress):
        return PreparedJob(job, f"{job.image}@digest" if job.workload.image.inside else "own")

    @contextmanager
    def hold(self, jobs):
        self.held.append(len(jobs))
        yield self

    def start(self, prepared):
        job = prepared.job
        if self.behaviour.get("lost") == job.step:
            self.behaviour["lost"] = ""
            raise InfrastructureError("the engine is away")
        rng = random.Random(job.step)
        level = 10 * rng.lognormvariate(0, self.noise)
        level *= self.ratio if job.image == CANDIDATE else 1.0
        values = [level * rng.lognormvariate(0, 0.001) for _ in range(6)]
        broken = job.step in self.behaviour.get("broken", ())
        faults = self.behaviour.get("faults", {})
        good = (lines(*values, check=not broken), exited())
        self.jobs.append(faults.get(job.step, good))
        return super().start(prepared)


class Unpaired(Script):
    """A host that runs no pairs."""


class Unshared(Host):
    """A host that could run pairs if it were configured so."""

    runs_pairs = False


def steps_of(executor):
    return [job.step for job in executor.started]


def first_pairs(count, name="gemm-0"):
    order = [("A", "B") if pair % 2 else ("B", "A") for pair in range(1, count + 1)]
    return [f"{name}-pair{pair}-{arm}" for pair, arms in enumerate(order, 1) for arm in arms]


@pytest.fixture
def paired(lease):
    against = Against("auto", REFERENCE, "cuda124", "")
    return replace(lease, run=replace(lease.run, image=CANDIDATE, against=against))


@pytest.mark.parametrize(
    ("ratio", "outcome", "reason"),
    [
        (1.12, "failed", "gemm-0: time: 12"),
        (1.01, "passed", ""),
        (0.8, "passed", ""),
        (1.0, "passed", ""),
        (2.5, "failed", "150 % higher"),
        (0.4, "inconclusive", "implausible"),
    ],
)
def test_a_candidate_is_judged_against_what_it_would_replace(
    context, paired, ratio, outcome, reason
):
    queue, executor = Memory(), Host(ratio)
    judge = Says(WorkloadJudgement("inconclusive", "no baseline yet"))
    drive(paired, context(executor, queue, judge=judge))
    assert queue.ended[0] == outcome, queue.ended
    assert reason in queue.ended[1]
    assert (queue.ended[2] is not None) == (outcome != "inconclusive")
    assert steps_of(executor)[:10] == first_pairs(5)
    assert executor.held == [2], "one session, of a job for each arm"
    if queue.ended[2]:
        assert queue.ended[2].bound.judge == PAIRED_JUDGE
    state = queue.compared[-1]
    assert state.outcome == outcome
    assert state.images == {"A": f"{REFERENCE}@digest", "B": f"{CANDIDATE}@digest"}
    metric = state.judgement.metrics[0]
    assert metric.effect == pytest.approx(ratio - 1, abs=0.006)
    assert metric.low < metric.effect < metric.high
    numbers = [one.pair for one in state.metrics["gemm.time"].medians]
    assert numbers == [*range(1, state.done + 1)]
    assert judge.offered == ([("run_1", "gemm-0")] if outcome != "failed" else [])


def test_a_disturbance_that_ends_is_no_regression(context, paired):
    class Disturbed(Host):
        def start(self, prepared):
            self.ratio = 1.12 if int(prepared.job.step[len("gemm-0-pair") : -2]) <= 4 else 1.0
            return super().start(prepared)

    queue = Memory()
    drive(paired, context(Disturbed(), queue))
    assert queue.ended[0] != "failed"
    assert queue.compared[4].outcome is None, "undecided after five pairs"
    assert queue.compared[-1].done > 5


def test_an_open_metric_gets_at_most_fifteen_pairs_and_others_none_after_theirs(
    context, paired, with_
):
    class Noisy(Host):
        def start(self, prepared):
            self.noise = 0.03 if prepared.job.workload.name == "conv" else 0.002
            return super().start(prepared)

    queue, executor = Memory(), Noisy()
    drive(paired, context(executor, queue, workloads=(with_(), with_(name="conv"))))
    assert queue.ended[0] == "inconclusive"
    assert "conv-0: time: " in queue.ended[1]
    assert "more pairs" in queue.ended[1]
    named = steps_of(executor)
    assert sum(step.startswith("conv") for step in named) == 30
    assert sum(step.startswith("gemm") for step in named) == 10
    assert "pair 1 of 5: gemm-0, reference" in queue.said
    assert any(said.startswith("pair 6 of at most 15: conv-0, ") for said in queue.said)
    assert any("; so far " in said and said.endswith(" left") for said in queue.said)


def test_checks_hold_in_both_arms_or_the_run_is_no_pass(context, paired, with_):
    both = (with_(), with_(name="conv"))
    for broken, outcome, reason, ran in (
        ("gemm-0-pair2-B", "failed", "gemm-0: check sound failed (pair 2)", 5),
        ("gemm-0-pair1-B", "failed", "gemm-0: check sound failed", 3),
        ("gemm-0-pair1-A", "inconclusive", "the reference cuda124 did not pass: check sound", 3),
    ):
        queue, executor = Memory(), Host(broken=(broken,))
        drive(paired, context(executor, queue, workloads=both))
        assert queue.ended[0] == outcome, broken
        assert reason in queue.ended[1]
        assert queue.compared[-1].outcome == outcome
        assert len(executor.started) == ran, steps_of(executor)
        assert [s.name for s in queue.recorded if s.block is None] == ["gemm-0", "conv-0"]


NO_GPU = (lines(env=None), exited(77))
HANG = ("hang", None)
NO_METRIC = (lines(), exited())


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (NO_GPU, "found no GPU"),
        (HANG, "was stopped after 0.05 s"),
        (NO_METRIC, "did not report metric time"),
        (([], exited()), "did not report metric time"),
        ((lines(1.0, env=None), exited()), "printed no env line"),
    ],
    ids=["no GPU", "hang", "no metric", "nothing", "no env"],
)
def test_what_only_the_candidate_does_fails(context, paired, with_, fault, reason):
    suite = (with_(timeout_s=0.05),)
    for pair in (1, 2):
        queue, executor = Memory(), Host(faults={f"gemm-0-pair{pair}-B": fault})
        drive(paired, context(executor, queue, workloads=suite))
        outcome, why, evidence = queue.ended
        assert (outcome, evidence.outcome) == ("failed", "failed"), why
        assert (evidence.sku, str(evidence.driver)) == ("A100-SXM4-80GB", "535.104.05")
        assert reason in why
        assert "the reference cuda124 ended well on the same GPU" in why
        assert steps_of(executor) == first_pairs(pair), "the reference of this pair ran as well"
        assert queue.compared[-1].outcome == "failed"

    both = {"gemm-0-pair1-A": fault, "gemm-0-pair1-B": fault}
    queue, executor = Memory(), Host(faults=both)
    drive(paired, context(executor, queue, workloads=suite))
    outcome, why, evidence = queue.ended
    assert (outcome, evidence) == ("inconclusive", None)
    assert f"the reference cuda124 too: {reason}" in why


def test_a_fault_of_a_sick_host_is_not_the_candidates(context, paired):
    fault, queue = {"gemm-0-pair1-B": NO_GPU}, Memory()
    drive(paired, context(Host(faults=fault), queue, health="sick"))
    assert "gemm-0: the host was sick" in queue.retried
    drive(replace(paired, attempt=3), context(Host(faults=fault), queue, health="sick"))
    assert (queue.ended[0], queue.ended[2]) == ("inconclusive", None)
    assert "needs a GPU without errors" in queue.ended[1]


def test_a_reference_on_a_sick_host_shows_nothing(context, paired):
    states = iter(["sick", "healthy"])

    def observe():
        return HostObservation(next(states), "as the test says")

    queue = Memory()
    made = context(Host(faults={"gemm-0-pair1-B": NO_GPU}), queue)
    drive(replace(paired, attempt=3), replace(made, watch=lambda slots: nullcontext(observe)))
    assert (queue.ended[0], queue.ended[2]) == ("inconclusive", None)
    assert "the reference cuda124 too: the host was sick" in queue.ended[1]


def test_a_workload_of_hours_is_not_compared(context, paired, with_):
    queue, executor = Memory(), Host()
    drive(paired, context(executor, queue, workloads=(with_(paired=False),)))
    assert steps_of(executor) == ["gemm-0"]
    assert "take too long for pairs (gemm-0)" in queue.compared[-1].reason


def test_a_persons_reason_lets_an_improbable_improvement_pass(context, paired):
    explained = replace(paired, run=replace(paired.run, explained="a new algorithm"))
    queue = Memory()
    drive(explained, context(Host(0.4), queue))
    assert queue.ended[0] == "passed"
    assert queue.compared[-1].judgement.metrics[0].explained == "a new algorithm"


def test_another_attempt_repeats_a_pair_whose_fault_lacks_its_reference(context, paired):
    fault = {"gemm-0-pair2-B": NO_GPU}
    queue, executor = Memory(), Host(faults=fault, lost="gemm-0-pair2-A")
    drive(paired, context(executor, queue))
    assert queue.retried
    again = Host(faults=fault)
    drive(replace(paired, attempt=2), context(again, queue))
    assert queue.ended[0] == "failed"
    assert steps_of(again) == ["gemm-0-pair2-B", "gemm-0-pair2-A"]


def test_a_suite_without_metrics_compares_checks_in_one_pair(context, paired, with_):
    queue, executor = Memory(), Host()
    drive(paired, context(executor, queue, workloads=(with_(metrics={}),)))
    assert queue.ended[0] == "passed"
    assert steps_of(executor) == first_pairs(1)


def test_seeds_are_blocks_of_one_arm(context, paired, with_):
    queue, executor = Memory(), Host(1.12)
    drive(paired, context(executor, queue, workloads=(with_(seeds=(1, 2)),)))
    assert queue.ended[0] == "failed"
    assert steps_of(executor)[:4] == [
        "gemm-1-pair1-A", "gemm-1-pair1-B", "gemm-2-pair1-B", "gemm-2-pair1-A",
    ]  # fmt: skip


def test_a_workload_with_an_image_of_its_own_is_judged_as_usual(context, paired, with_):
    own = with_(name="fabric", image=replace(with_().image, inside=False))
    queue, executor = Memory(), Host()
    drive(paired, context(executor, queue, workloads=(with_(), own)))
    assert queue.ended[0] == "passed"
    assert steps_of(executor)[-1] == "fabric-0"
    assert queue.compared[-1].single == ("fabric",)

    queue, executor = Memory(), Host()
    drive(paired, context(executor, queue, workloads=(own,)))
    assert queue.ended[0] == "passed"
    assert steps_of(executor) == ["fabric-0"]
    assert "nothing to compare" in queue.compared[-1].reason


def test_a_baseline_that_contradicts_a_pass_makes_it_inconclusive(context, paired):
    queue = Memory()
    slow = Says(WorkloadJudgement("failed", "time is 9 % slower"))
    drive(paired, context(Host(), queue, judge=slow))
    assert queue.ended[0] == "inconclusive"
    assert "but against its baseline: time is 9 % slower" in queue.ended[1]

    why = "above the published peak"
    doubted = MetricJudgement("time", "inconclusive", why, "ms", "lower", 0.05, doubt=why)
    queue = Memory()
    judge = Says(WorkloadJudgement("inconclusive", "implausible", metrics=(doubted,)))
    drive(paired, context(Host(), queue, judge=judge))
    assert queue.ended[0] == "inconclusive"
    assert "but time: above the published peak" in queue.ended[1]
    assert judge.offered == [("run_1", "gemm-0")], "a person may accept it with a reason"


def test_a_host_that_runs_no_pairs_judges_alone_or_refuses(context, paired):
    queue, executor = Memory(), Unpaired((lines(1.0), exited()))
    drive(paired, context(executor, queue))
    assert queue.ended[0] == "passed"
    assert "runs no pairs: the candidate is judged alone" in queue.compared[-1].reason

    named = replace(paired.run, against=Against("cuda124", REFERENCE, "cuda124", ""))
    for host in (Unpaired(), Unshared()):
        queue = Memory()
        drive(replace(paired, run=named), context(host, queue))
        assert queue.ended[0] == "error"
        assert "runs no pairs" in queue.ended[1]


def test_a_host_may_know_both_blocks_of_a_pair_before_the_first(context, paired):
    class Planned(Host):
        expected: list[list[str]] = []

        def expect(self, blocks):
            self.expected.append([block.job.step for block in blocks])

    executor = Planned()
    drive(paired, context(executor, Memory()))
    assert [step for pair in executor.expected for step in pair] == steps_of(executor)


def test_workloads_on_several_nodes_are_not_compared_where_pods_would_move(context, paired, with_):
    class OnePod(Host):
        pairs_nodes = False

    queue, executor = Memory(), OnePod()
    judge = Says(WorkloadJudgement("inconclusive", "no baseline"))
    several = (with_(nodes=2),)
    drive(paired, context(executor, queue, judge=judge, workloads=several))
    assert steps_of(executor) == ["gemm-0"]
    assert "cannot run both on the same nodes" in queue.compared[-1].reason
    assert queue.compared[-1].single == ("gemm",)


def test_a_process_host_says_why_it_compares_nothing(context, paired):
    class Processes(Unpaired):
        kind = "process"

    named = replace(paired, run=replace(paired.run, against=Against("a", REFERENCE, "a", "")))
    with pytest.raises(CompatgateError) as caught:
        check_pairs(named, context(Processes(), Memory()))
    assert "runs no images" in caught.value.hint


def test_a_reference_that_the_worker_does_not_allow_is_not_run(context, paired):
    images = AllowedImages((CANDIDATE,), "extend it")
    queue, executor, judge = (
        Memory(),
        Host(),
        Says(WorkloadJudgement("inconclusive", "no baseline")),
    )
    drive(paired, replace(context(executor, queue, judge=judge), images=images))
    assert steps_of(executor) == ["gemm-0"], "nobody named the reference: judged alone"
    assert "the reference cannot be run" in queue.compared[-1].reason
    assert REFERENCE in queue.compared[-1].reason
    assert judge.offered == [("run_1", "gemm-0")]

    named = replace(paired.run, against=Against(REFERENCE, REFERENCE, None, ""))
    queue, executor = Memory(), Host()
    drive(replace(paired, run=named), replace(context(executor, queue), images=images))
    assert queue.ended[0] == "error"
    assert REFERENCE in queue.ended[1]
    assert executor.started == []


@pytest.mark.parametrize("lost", ["gemm-0-pair1-A", "gemm-0-pair3-B", "gemm-0-pair4-A"])
def test_another_attempt_keeps_whole_pairs_and_begins_others_again(context, paired, lost):
    first, executor = Memory(), Host(lost=lost)
    drive(paired, context(executor, first))
    assert first.retried == "the engine is away"
    before = steps_of(executor)
    queue, second = Memory(first.recorded), Host()
    drive(replace(paired, attempt=2), context(second, queue))
    assert queue.ended[0] == "passed"
    pair = int(lost[len("gemm-0-pair") : -2])
    assert steps_of(second) == first_pairs(5)[2 * (pair - 1) :]
    assert before == first_pairs(5)[: len(before)]
    sessions = {(r.block.pair, r.block.session) for r in queue.recorded if r.block}
    latest = {number: max(s for p, s in sessions if p == number) for number, _ in sessions}
    assert latest == {n: 1 if n < pair else 2 for n in range(1, 6)}


def test_pairs_of_another_image_or_content_are_not_kept(context, paired, with_):
    first = Memory()
    drive(paired, context(Host(lost="gemm-0-pair3-A"), first))
    for changed in ("image", "content"):
        queue, executor = Memory(first.recorded), Host()
        run = paired.run
        if changed == "image":
            run = replace(run, image=CANDIDATE + "3")
        digest = "sha256:other" if changed == "content" else ""
        again = replace(paired, run=run, attempt=2)
        drive(again, context(executor, queue, workloads=(with_(digest=digest),)))
        assert "gemm-0-pair1-B" in steps_of(executor)


def test_a_failed_block_is_not_run_again(context, paired):
    first = Memory()
    drive(paired, context(Host(broken=("gemm-0-pair2-B",)), first))
    blocks = [result for result in first.recorded if result.block]
    queue, executor = Memory(blocks), Host()
    drive(replace(paired, attempt=2), context(executor, queue))
    assert queue.ended[:2] == ("failed", "gemm-0: check sound failed (pair 2)")
    assert executor.started == []


def test_a_worker_killed_while_judging_is_followed_by_one_that_only_judges(context, paired):
    first = Memory()
    drive(paired, context(Host(1.12), first))
    queue, executor = Memory(first.recorded), Host()
    drive(replace(paired, attempt=2, abandoned=True), context(executor, queue))
    assert executor.started == []
    assert queue.ended[0] == "failed"


def test_history_of_the_same_content_lends_degrees_of_freedom(context, paired):
    first = Memory()
    drive(paired, context(Host(noise=0.02), first))
    earlier = first.compared[-1]
    queue = Memory()
    queue.earlier = [earlier] * 12
    drive(paired, context(Host(noise=0.02), queue))
    assert queue.compared[-1].judgement.metrics[0].history > 10
    other = replace(
        earlier, metrics={n: replace(m, workload="gemm@x") for n, m in earlier.metrics.items()}
    )
    queue = Memory()
    queue.earlier = [other] * 12
    drive(paired, context(Host(noise=0.02), queue))
    assert queue.compared[-1].judgement.metrics[0].history == 0


def test_another_unit_is_converted_and_a_foreign_one_leaves_the_metric_open(context, paired, with_):
    spec = with_().metrics["time"]
    for unit, outcome in (("s", "passed"), ("GB/s", "inconclusive")):
        queue = Memory()
        workload = with_(metrics={"time": replace(spec, unit=unit)})
        drive(paired, context(Host(), queue, workloads=(workload,)))
        assert queue.ended[0] == outcome
    assert "not reported" in queue.ended[1]


def test_how_pairs_stand_survives_storage(context, paired):
    queue = Memory()
    drive(paired, context(Host(1.12), queue))
    state = queue.compared[-1]
    text = msgspec.json.encode(state)
    assert msgspec.json.decode(text, type=type(state)) == state
    assert ENV["driver"] in str(queue.recorded[-1].report)
