"""What evidence is bound to: the image that ran, its GPU content, the suite, GPUs and host."""

from __future__ import annotations

import msgspec
import pytest
from engine_edges import GEMM, Memory, Script, exited, lines

from compatgate.canary.engine import ImageContent
from compatgate.canary.engine.conclude import Conditions, Expectation, conclude_run
from compatgate.canary.engine.drive import drive
from compatgate.canary.executors import make_environment
from compatgate.canary.judge.result import JUDGE
from compatgate.canary.run import Device, Env, Report, Run, StepResult
from compatgate.core.binding import Binding, define_suite, find_digest
from compatgate.core.stack import parse_stack
from compatgate.core.versions import parse_version

ONE, TWO = (f"registry.example/app@sha256:{digit * 64}" for digit in "12")
VERSIONS = {"cuda": "12.4.1"}


def step(image, name="gemm-0", workload="gemm", outcome="passed", gpu="NVIDIA L4"):
    env = Env(driver="550.54.15", gpus=(Device(gpu, uuid="GPU-1"),), versions=VERSIONS)
    report = msgspec.to_builtins(Report(env=env))
    return StepResult(
        name=name, workload=workload, seed=0, outcome=outcome, image=image, report=report
    )


@pytest.fixture
def conclude(facts):
    def conclude(*steps, tested=("gemm",)):
        conditions = Conditions(
            Expectation(parse_stack({"cuda": "12.4"}), "L4", parse_version("driver", "550.54.15")),
            frozenset({"gemm", "own"}),
            development=False,
            now=1_800_000_000,
            tested=frozenset(tested),
            bound=Binding(suite="sha256:s", host="a"),
        )
        run = Run(id="run_1", suite="smoke", state="judging", stack={})
        return conclude_run(run, steps, conditions, facts.gpus)

    return conclude


def test_evidence_is_bound_to_the_image_and_gpus_of_its_steps(conclude):
    found = conclude(step(ONE), step(TWO, "own-0", "own")).evidence.bound
    assert found == Binding(
        image=f"sha256:{'1' * 64}", suite="sha256:s", host="a", arch="sm_89", gpus=("GPU-1",)
    )


def test_a_run_whose_steps_ran_two_images_is_no_evidence(conclude):
    found = conclude(step(ONE), step(TWO, "gemm-1"))
    assert (found.outcome, found.evidence) == ("inconclusive", None)
    assert "steps ran different images" in found.reason
    failed = conclude(step(ONE), step(TWO, "gemm-1", outcome="failed"))
    assert (failed.outcome, failed.evidence) == ("failed", None)


def test_a_workload_in_its_own_image_binds_the_evidence_to_no_image(conclude):
    assert conclude(step(ONE), tested=()).evidence.bound.image is None
    assert conclude(step("registry.example/app:1")).evidence.bound.image is None


@pytest.mark.parametrize("outcome", [0, 1])
def test_a_driven_run_records_suite_host_and_content_even_when_it_fails(context, lease, outcome):
    class Executor(Script):
        def prepare(self, job, progress):
            return msgspec.structs.replace(super().prepare(job, progress), image=ONE)

    asked = []

    def read(image):
        asked.append(image)
        return ImageContent("sha256:c", images=("sha256:i",))

    workload = msgspec.structs.replace(GEMM, digest="sha256:w")
    queue = Memory()
    told = lines(*[1.0] * 30)
    made = context(Executor((told, exited(outcome))), queue, workloads=(workload,))
    made = msgspec.structs.replace(made, read_content=read)
    run = msgspec.structs.replace(lease.run, image=ONE, stack={})
    drive(msgspec.structs.replace(lease, run=run), made)
    ended, reason, evidence = queue.ended
    assert ended == ("failed" if outcome else "passed"), reason
    bound = evidence.bound
    assert asked == [ONE]
    assert (bound.image, bound.content, bound.images) == (
        find_digest(ONE),
        "sha256:c",
        ("sha256:i",),
    )
    assert (bound.host, bound.executor, bound.judge) == ("h", "script", JUDGE)
    assert bound.suite == define_suite({workload.name: "sha256:w"}).digest
    assert bound.workloads == {workload.name: "sha256:w"}


@pytest.mark.parametrize(("kind", "asked"), [("slurm", 4), ("kubernetes", 4), ("docker", 0)])
def test_programs_of_a_cluster_must_show_files_of_the_image(context, lease, kind, asked):
    """The worker does not start the container there: which files, each lease decides anew."""
    files = {f"lib/{n}": f"sha256:{n}" for n in range(32)}

    class Executor(Script):
        def prepare(self, job, progress):
            return msgspec.structs.replace(super().prepare(job, progress), image=ONE)

    chosen = []
    for _ in range(3):
        executor = Executor((lines(*[1.0] * 30), exited()))
        executor.kind = kind
        workload = msgspec.structs.replace(GEMM, proofs=("python",))
        made = context(executor, Memory(), workloads=(workload,))
        made = msgspec.structs.replace(made, read_content=lambda _: ImageContent(files=files))
        run = msgspec.structs.replace(lease.run, image=ONE, stack={})
        drive(msgspec.structs.replace(lease, run=run), made)
        (job,) = executor.started
        assert len(job.files) == asked
        assert job.files.items() <= files.items()
        shown = make_environment(job, "/tmp", {}).get("COMPATGATE_FILES", "")
        assert shown == ":".join(sorted(job.files))
        chosen.append(shown)
    assert len(set(chosen)) > 1 or not asked


def test_a_copy_of_a_suite_that_differs_runs_nothing(context, lease):
    executor, queue = Script(), Memory()
    workload = msgspec.structs.replace(GEMM, digest="sha256:gutted")
    expected = define_suite({workload.name: "sha256:whole"})
    made = context(executor, queue, workloads=(workload,))
    drive(msgspec.structs.replace(lease, definition=expected), made)
    outcome, reason, evidence = queue.ended
    assert (outcome, evidence, executor.started) == ("error", None, [])
    own = define_suite({workload.name: "sha256:gutted"})
    assert f"the worker's suite smoke is {own.digest}, the gate's is {expected.digest}" in reason


def test_a_changed_suite_says_what_changed():
    before = define_suite({"gemm": "sha256:1", "conv": "sha256:2"})
    bound = Binding(suite=before.digest, workloads=before.workloads)
    assert before.changed_since(bound) == ""
    assert before.changed_since(Binding()) == ""
    changes = {
        "workload gemm changed": {"gemm": "sha256:3", "conv": "sha256:2"},
        "workload conv is gone": {"gemm": "sha256:1"},
        "workload nccl is new": {"gemm": "sha256:1", "conv": "sha256:2", "nccl": "sha256:4"},
        "the order of its workloads changed": {"conv": "sha256:2", "gemm": "sha256:1"},
    }
    for said, workloads in changes.items():
        assert define_suite(workloads).changed_since(bound) == said
