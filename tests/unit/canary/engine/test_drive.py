import itertools
import threading

import msgspec
import pytest
from engine_edges import ENV, Memory, Says, Script, exited, lines
from msgspec.structs import replace

from compatgate.canary.allowed_images import AllowedImages
from compatgate.canary.engine import steps
from compatgate.canary.engine.drive import drive
from compatgate.canary.executors import Status, make_environment
from compatgate.canary.judge.workload import WorkloadJudgement
from compatgate.canary.run import StepResult
from compatgate.errors import BadInput, InfrastructureError, Unavailable


def test_a_run_goes_through_its_states_and_ends_with_evidence(context, lease):
    queue, executor = Memory(), Script((lines(1.0, 1.1), exited()))
    drive(lease, context(executor, queue))
    assert queue.states == ["preparing", "running", "judging"]
    outcome, _, evidence = queue.ended
    assert outcome == "passed"
    assert evidence.sku == "A100-SXM4-80GB"
    assert executor.cleaned == ["run_1"]
    assert executor.started[0].gpu_slots == (3,)


def test_each_workload_runs_once_for_each_seed(context, lease, with_):
    queue = Memory()
    executor = Script(*[(lines(1.0), exited())] * 3)
    drive(lease, context(executor, queue, workloads=(with_(seeds=(1, 2)), with_(name="conv"))))
    assert [job.step for job in executor.started] == ["gemm-1", "gemm-2", "conv-0"]
    assert [result.name for result in queue.recorded] == ["gemm-1", "gemm-2", "conv-0"]


def test_what_a_program_prints_is_in_the_log(context, lease):
    queue = Memory()
    drive(lease, context(Script((lines(1.0), exited())), queue))
    assert b'{"time": 1.0}' in queue.log


def test_a_flood_is_kept_up_to_the_limit_and_the_log_says_so(context, lease, with_):
    queue = Memory()
    limits = msgspec.structs.replace(with_().limits, output=100)
    drive(
        lease,
        context(Script((lines(*range(50)), exited())), queue, workloads=(with_(limits=limits),)),
    )
    assert len(queue.log) < 200
    assert b"more bytes were dropped: output limit reached" in queue.log


@pytest.mark.parametrize(
    ("job", "outcome", "reason"),
    [
        ((lines(1.0, check=False), exited()), "failed", "check sound failed"),
        ((lines(1.0), exited(139)), "failed", "SIGSEGV"),
        ((lines(1.0), exited(137, oom_killed=True)), "failed", "was killed for using more than"),
        ((lines(1.0, env=None), exited()), "inconclusive", "no env line"),
        (([], exited()), "failed", "did not report metric time"),
        ((lines(1.0), exited(77)), "failed", "found no GPU, and the host's driver shows it"),
    ],
)
def test_what_the_program_did_is_the_runs_outcome(context, lease, job, outcome, reason):
    queue = Memory()
    drive(lease, context(Script(job), queue))
    assert queue.ended[0] == outcome
    assert reason in queue.ended[1]
    assert queue.retried is None


HANG, SHORT = ("hang", None), {"timeout_s": 0.05}


def test_a_hang_of_what_has_ended_in_time_before_is_stopped_and_fails(context, lease, with_):
    queue, executor = Memory(), Script(HANG)
    queue.in_time = "run_0"
    drive(lease, context(executor, queue, workloads=(with_(**SHORT),)))
    outcome, reason, evidence = queue.ended
    assert (outcome, evidence.outcome) == ("failed", "failed")
    assert "was stopped after 0.05 s; on this host it ended in time before (run run_0)" in reason
    assert not executor.alive


def test_a_hang_of_what_is_new_on_a_host_is_repeated_then_inconclusive(context, lease, with_):
    queue, executor = Memory(), Script(HANG, HANG)
    drive(lease, context(executor, queue, workloads=(with_(**SHORT),)))
    assert [job.step for job in executor.started] == ["gemm-0", "gemm-0-again1"]
    outcome, reason, evidence = queue.ended
    assert (outcome, evidence) == ("inconclusive", None)
    assert "was stopped after 0.05 s, 2 times; it never ended in time on this host" in reason


def test_a_hang_that_does_not_repeat_is_judged_by_its_repetition(context, lease, with_):
    queue, executor = Memory(), Script(HANG, (lines(1.0), exited()))
    drive(lease, context(executor, queue, workloads=(with_(**SHORT),)))
    assert queue.ended[0] == "passed"
    (step,) = queue.recorded
    took = (step.finished_at - step.started_at).total_seconds()
    assert took >= SHORT["timeout_s"], "a step lasts from its first execution to its last"


def test_a_hang_while_the_host_did_not_answer_is_no_fault_of_the_candidate(context, lease, with_):
    class Frozen(Script):
        def status(self, handle):
            threading.Event().wait(0.25)
            return super().status(handle)

    queue, executor = Memory(), Frozen(HANG)
    queue.in_time = "run_0"
    drive(lease, context(executor, queue, workloads=(with_(timeout_s=0.4),), lease=0.2))
    outcome, reason, evidence = queue.ended
    assert (outcome, evidence) == ("inconclusive", None)
    assert "the host did not answer meanwhile" in reason


def test_a_run_that_failed_proposes_no_baseline_of_its_other_steps(context, lease, with_):
    queue, judge = Memory(), Says(WorkloadJudgement("passed", ""))
    executor = Script((lines(1.0), exited()), (lines(1.0, check=False), exited()))
    both = (with_(), with_(name="conv"))
    drive(lease, context(executor, queue, workloads=both, judge=judge))
    assert (queue.ended[0], judge.offered) == ("failed", [])


def test_a_cancelled_run_is_killed_cleaned_and_ends_cancelled(context, lease):
    queue, executor = Memory(), Script(("hang", None))
    threading.Timer(0.05, setattr, (queue, "order", "cancel")).start()
    drive(lease, context(executor, queue))
    assert queue.ended[0] == "cancelled"
    assert not executor.alive
    assert executor.cleaned == ["run_1"]


def test_a_lost_lease_is_dropped_without_a_word(context, lease):
    queue, executor = Memory(), Script(("hang", None))
    threading.Timer(0.05, setattr, (queue, "lost", True)).start()
    drive(lease, context(executor, queue))
    assert (queue.ended, queue.retried) == (None, None)
    assert not executor.alive, "its own container is gone"
    assert executor.cleaned == [], "what the next worker started is not touched"


def test_a_queue_silent_for_as_long_as_a_lease_holds_is_a_lost_lease(context, lease):
    queue, executor = Memory(), Script(("hang", None))

    def away(lease):
        raise InfrastructureError("the database is away")

    queue.renew = away
    drive(lease, context(executor, queue, lease=0.2))
    assert queue.ended is None
    assert not executor.alive


def test_a_worker_that_is_stopped_hands_its_run_back_and_leaves_nothing(context, lease):
    queue, executor = Memory(), Script(("hang", None))
    stopped = threading.Event()
    threading.Timer(0.05, stopped.set).start()
    drive(lease, context(executor, queue), stopped.is_set)
    assert queue.retried == "its worker was stopped"
    assert executor.cleaned == ["run_1"]
    assert not executor.alive


def test_a_host_that_fails_puts_the_run_back(context, lease):
    queue, executor = Memory(), Script()
    executor.fail_prepare = InfrastructureError("the registry is away")
    drive(lease, context(executor, queue))
    assert queue.retried == "the registry is away"
    assert executor.cleaned == ["run_1"], "the next attempt may be on another host"
    assert queue.ended is None


def test_a_lost_job_puts_the_run_back(context, lease):
    queue = Memory()
    lost = Status("lost", reason="the engine was restarted")
    drive(lease, context(Script((lines(1.0), lost)), queue))
    assert queue.retried == "the job was lost: the engine was restarted"


def test_what_another_attempt_cannot_mend_ends_the_run(context, lease):
    queue, executor = Memory(), Script()
    executor.fail_prepare = BadInput("image 'x' does not exist", field="image")
    drive(lease, context(executor, queue))
    assert queue.ended[:2] == ("error", "image: image 'x' does not exist")


@pytest.mark.parametrize(
    ("arch", "needs"),
    [
        (["sm_80", "compute_90"], False),
        (["sm_70", "compute_70"], True),
        (["sm_90"], True),
        (None, None),
    ],
)
def test_a_program_is_told_whether_the_stated_stack_needs_ptx(context, lease, facts, arch, needs):
    executor = Script((lines(1.0), exited()))
    stack = {"cuda": "12.4"} | ({"arch": arch} if arch else {})
    ready = replace(context(executor, Memory()), code=facts.arch)
    drive(replace(lease, run=replace(lease.run, stack=stack)), ready)
    (job,) = executor.started
    assert job.needs_ptx is needs
    told = make_environment(job, "/tmp", {}).get("COMPATGATE_NEEDS_PTX")
    assert told == {True: "yes", False: "no", None: None}[needs]


def test_an_image_that_the_worker_does_not_allow_never_reaches_a_host(context, lease):
    queue, executor = Memory(), Script((lines(1.0), exited()))
    run = replace(lease.run, image="evil.example/app:1")
    listed = AllowedImages(("registry.example/*",), "extend it")
    drive(replace(lease, run=run), replace(context(executor, queue), images=listed))
    outcome, reason, evidence = queue.ended
    assert (outcome, evidence) == ("error", None)
    assert "evil.example/app:1 is not an allowed image under test" in reason
    assert "extend it" in reason
    assert executor.started == []
    assert not any("pulling" in doing for doing in queue.said)


def test_a_defect_ends_the_run_and_says_so(context, lease):
    queue, executor = Memory(), Script()
    executor.fail_prepare = ZeroDivisionError("oh")
    drive(lease, context(executor, queue))
    assert queue.ended[:2] == ("error", "unexpected error: ZeroDivisionError: oh")


def test_an_abandoned_run_is_cleaned_before_it_starts_again(context, lease):
    queue, executor = Memory(), Script((lines(1.0), exited()))
    again = msgspec.structs.replace(lease, attempt=2, abandoned=True)
    drive(again, context(executor, queue))
    assert executor.cleaned == ["run_1", "run_1"]
    assert queue.ended[0] == "passed"


def test_a_run_out_of_attempts_is_cleaned_and_given_up(context, lease):
    queue, executor = Memory(), Script()
    drive(msgspec.structs.replace(lease, attempt=4, abandoned=True), context(executor, queue))
    assert executor.cleaned
    assert executor.started == []
    assert queue.ended[0] == "inconclusive"
    assert "gave up after 3 attempts" in queue.ended[1]


def test_steps_that_an_earlier_attempt_completed_are_not_run_again(context, lease, with_):
    first = Memory()
    both = (with_(), with_(name="conv"))
    drive(
        lease,
        context(Script((lines(1.0), exited()), (lines(1.0), exited())), first, workloads=both),
    )
    queue, executor = Memory(first.recorded[:1]), Script((lines(1.0), exited()))
    drive(msgspec.structs.replace(lease, attempt=2), context(executor, queue, workloads=both))
    assert [job.step for job in executor.started] == ["conv-0"]
    assert queue.ended[0] == "passed"


def test_a_worker_killed_while_judging_is_followed_by_one_that_only_judges(context, lease):
    first = Memory()
    drive(lease, context(Script((lines(1.0), exited())), first))
    queue, executor = Memory(first.recorded), Script()
    drive(msgspec.structs.replace(lease, attempt=2, abandoned=True), context(executor, queue))
    assert executor.started == []
    assert queue.ended[0] == "passed"
    assert queue.ended[2] is not None


def test_a_run_out_of_attempts_ends_even_if_its_host_is_gone(context, lease):
    queue, executor = Memory(), Script()
    executor.fail_clean = 1
    drive(msgspec.structs.replace(lease, attempt=4, abandoned=True), context(executor, queue))
    assert queue.ended[0] == "inconclusive"
    assert "are removed when the host answers (the engine is away)" in queue.ended[1]


def test_a_host_that_cannot_be_cleaned_keeps_its_slot_for_the_next_worker(context, lease):
    queue, executor = Memory(), Script((lines(1.0), exited()))
    executor.fail_clean = 1
    drive(lease, context(executor, queue))
    assert queue.ended is None


@pytest.mark.parametrize("state", ["sick", "shared", "unknown"])
@pytest.mark.parametrize("check", [True, False])
def test_a_result_from_an_unsound_host_is_inconclusive(context, lease, state, check):
    queue, last = Memory(), replace(lease, attempt=3)
    drive(last, context(Script((lines(1.0, check=check), exited())), queue, health=state))
    assert queue.ended[0] == "inconclusive"
    assert f"the host was {state}" in queue.ended[1]
    assert "; needs " in queue.ended[1]


@pytest.mark.parametrize("state", ["sick", "shared"])
def test_a_host_that_may_be_sound_again_gets_another_attempt(context, lease, with_, state):
    queue = Memory()
    drive(lease, context(Script((lines(1.0), exited())), queue, health=state))
    assert (queue.ended, queue.recorded) == (None, [])
    assert f"gemm-0: the host was {state}" in queue.retried


def test_a_programs_own_progress_and_the_time_left_are_shown(context, lease, with_, monkeypatch):
    monkeypatch.setattr(steps, "_PROGRESS_S", 0.0)
    queue, ends = Memory(), threading.Event()
    queue.known = {"gemm-0": 60.0, "conv-0": 120.0}

    class Slow(Script):
        def output(self, handle, stop):
            if handle.step == "gemm-0":
                yield b'{"progress": 0.53}\n'
                while not any("53%" in said for said in queue.said) and not stop():
                    ends.wait(0.01)
            yield from super().output(handle, stop)

    both = (with_(), with_(name="conv"))
    drive(lease, context(Slow(*[(lines(1.0), exited())] * 2), queue, workloads=both))
    assert queue.ended[0] == "passed"
    assert "running gemm-0 (1 of 2), about 3 min left" in queue.said
    (shown,) = {said for said in queue.said if "53%" in said}
    assert shown.startswith("running gemm-0 (1 of 2), 53%, about ")
    share, left = queue.shares[queue.said.index(shown)]
    assert 0 <= share < 0.5, "the longer step is yet to come"
    assert left == pytest.approx(120, abs=10)
    assert "running conv-0 (2 of 2), about 2 min left" in queue.said


def test_a_workload_of_hours_is_never_repeated(context, lease, with_):
    long = with_(paired=False, timeout_s=0.05)
    noisy = Says(WorkloadJudgement("inconclusive", "too noisy", more=9))
    cases = (
        ("a hang", Script(HANG), Says(), "healthy", "never ended in time"),
        ("noise", Script((lines(1.0), exited())), noisy, "healthy", "too noisy"),
        ("neighbours", Script((lines(1.0), exited())), Says(), "shared", "the host was shared"),
    )
    for name, executor, judge, health, reason in cases:
        queue = Memory()
        suite = (replace(long, timeout_s=0.05 if name == "a hang" else 60),)
        drive(lease, context(executor, queue, workloads=suite, judge=judge, health=health))
        assert [job.step for job in executor.started] == ["gemm-0"], name
        assert queue.ended[0] == "inconclusive", name
        assert reason in queue.ended[1], name


def test_without_the_hosts_own_probe_a_missing_gpu_is_inconclusive(context, lease):
    queue = Memory()
    script = Script((lines(1.0), exited(77)))
    drive(lease, context(script, queue, health="unobserved"))
    assert (queue.ended[0], queue.ended[2]) == ("inconclusive", None)


def test_a_regression_fails_the_run(context, lease):
    queue = Memory()
    slow = Says(WorkloadJudgement("failed", "time is 12 % slower"))
    drive(lease, context(Script((lines(1.0), exited())), queue, judge=slow))
    assert queue.ended[:2] == ("failed", "gemm-0: time is 12 % slower")
    assert queue.ended[2].outcome == "failed"


def test_noise_is_answered_with_more_repetitions_and_all_values_are_judged(context, lease):
    queue = Memory()
    executor = Script((lines(1.0), exited()), (lines(2.0), exited()))

    judge = Says(
        WorkloadJudgement("inconclusive", "too noisy", more=1),
        WorkloadJudgement("passed", "enough"),
    )
    drive(lease, context(executor, queue, judge=judge))
    assert [job.step for job in executor.started] == ["gemm-0", "gemm-0-again1"]
    assert queue.ended[0] == "passed"
    assert queue.recorded[0].report["metrics"][0]["values"] == (1.0, 2.0)


def test_repetitions_are_bounded(context, lease):
    queue = Memory()
    executor = Script(*[(lines(1.0), exited())] * 5)
    noisy = Says(WorkloadJudgement("inconclusive", "too noisy", more=9))
    drive(lease, context(executor, queue, judge=noisy))
    assert len(executor.started) == 3
    assert queue.ended[:2] == ("inconclusive", "gemm-0: too noisy")


def test_a_recorded_step_is_whole(context, lease):
    queue = Memory()
    drive(lease, context(Script((lines(1.0), exited())), queue))
    result = queue.recorded[0]
    assert isinstance(result, StepResult)
    assert (result.workload, result.seed, result.exit_code) == ("gemm", 0, 0)
    assert result.image == "sha256:1"
    assert result.health == {"state": "healthy"}
    assert result.started_at <= result.finished_at


def test_a_sound_run_is_offered_to_learn_from(context, lease):
    judge = Says()
    drive(lease, context(Script((lines(1.0), exited())), Memory(), judge=judge))
    assert judge.offered == [("run_1", "gemm-0")]


def test_a_run_that_measured_something_else_is_not(context, lease):
    judge = Says()
    other = {**ENV, "versions": {"cuda": "12.1"}}
    drive(lease, context(Script((lines(1.0, env=other), exited())), Memory(), judge=judge))
    assert judge.offered == []


def test_where_no_stack_was_stated_what_the_image_brings_is_measured(context, lease):
    queue, judge = Memory(), Says()
    anything = replace(lease, run=replace(lease.run, stack={}, image="registry.example/app:1"))
    drive(anything, context(Script((lines(1.0), exited())), queue, judge=judge))
    outcome, _, evidence = queue.ended
    assert outcome == "passed"
    assert {n: v.text for n, v in evidence.components.items()} == ENV["versions"]
    assert judge.offered == [("run_1", "gemm-0")]


def test_a_database_that_fails_in_between_is_no_verdict_on_the_run(context, lease):
    queue, executor = Memory(), Script((lines(1.0), exited()))

    def away(lease, result):
        raise Unavailable("the database does not answer")

    queue.record = away
    drive(lease, context(executor, queue, lease=1.0))
    assert queue.ended is None
    assert queue.retried == "the database does not answer"


def test_a_database_that_is_away_for_a_moment_is_waited_for(context, lease):
    queue, refusals = Memory(), {"enter": 2, "write": 1, "record": 2, "finish": 1}

    def shy(name):
        call = getattr(queue, name)

        def ask(*arguments):
            refusals[name] -= 1
            if refusals[name] >= 0:
                raise Unavailable("the database does not answer")
            return call(*arguments)

        return ask

    for name in refusals:
        setattr(queue, name, shy(name))
    drive(lease, context(Script((lines(1.0), exited())), queue))
    assert queue.ended[0] == "passed"
    assert queue.retried is None
    assert [result.name for result in queue.recorded] == ["gemm-0"]


def test_what_a_program_printed_is_seen_while_it_is_silent(context, lease, with_, monkeypatch):
    monkeypatch.setattr(steps, "_FLUSH_S", 0.01)
    queue, seen = Memory(), []

    class Hangs(Script):
        def output(self, handle, stop):
            yield lines(1.0)[0]
            while not stop():
                seen.append(queue.log)

    drive(lease, context(Hangs(("hang", None)), queue, workloads=(with_(timeout_s=0.1),)))
    assert lines(1.0)[0] in seen[-1]


def test_a_pull_is_told_of_now_and_then_and_stops_when_it_is_cancelled(context, lease):
    queue, calls = Memory(), []

    class Pulls(Script):
        def prepare(self, job, progress):
            for number in itertools.count():
                calls.append(number)
                progress("pulling", None)

    threading.Timer(0.1, setattr, (queue, "order", "cancel")).start()
    drive(lease, context(Pulls(), queue))
    assert queue.ended[0] == "cancelled"
    assert queue.said == ["pulling"]
    assert len(calls) > 10
