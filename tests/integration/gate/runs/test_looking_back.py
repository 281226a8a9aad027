"""What is read of runs that have been: a step's past, a log's end, what runs were for."""

from __future__ import annotations

from canary_runs import host

from compatgate.canary.run import Origin, StepResult


def ran(queue, submit, outcome="passed", suite="dl-core", step="gemm-0", **fields):
    """A run that recorded a step and ended."""
    run = submit(suite, **fields)
    lease = queue.lease("w1", [host()])
    assert lease.run.id == run
    queue.record(lease, StepResult(step, "gemm", 0, outcome))
    queue.finish(lease, outcome, "", None)
    return run


def test_a_steps_past_is_newest_first_and_of_ended_runs_alone(rooms, queue, submit):
    old = ran(queue, submit, "inconclusive")
    new = ran(queue, submit, "passed")
    ran(queue, submit, suite="soak")
    ran(queue, submit, step="gemm-1")
    under_way = rooms.runs.get(submit("dl-core"))
    found = rooms.runs.past(under_way, "gemm-0")
    assert [(step.run, step.state) for step in found] == [(new, "passed"), (old, "inconclusive")]
    assert found[0].body["outcome"] == "passed"
    assert len(rooms.runs.past(under_way, "gemm-0", limit=1)) == 1


def test_of_several_attempts_the_last_is_a_steps_past(rooms, queue, submit, time):
    run = submit("dl-core")
    first = queue.lease("w1", [host()])
    queue.record(first, StepResult("gemm-0", "gemm", 0, "error"))
    queue.retry(first, "the host went away")
    time.forward(hours=1)
    second = queue.lease("w1", [host()])
    queue.record(second, StepResult("gemm-0", "gemm", 0, "passed"))
    queue.finish(second, "passed", "", None)
    (step,) = rooms.runs.past(rooms.runs.get(run), "gemm-0")
    assert step.body["outcome"] == "passed"


def test_a_step_ended_in_time_if_its_content_did_on_this_host(queue, submit):
    def ended(digest, exit_code, name="a100-1"):
        submit("dl-core")
        lease = queue.lease("w1", [host(name)])
        origin = Origin(digest, "A100-SXM4-80GB", "docker", development=False)
        step = StepResult("gemm-0", "gemm", 0, "failed", exit_code=exit_code, origin=origin)
        queue.record(lease, step)
        queue.finish(lease, "failed", "", None)
        return lease.run.id

    queue.register("w1", [host("a100-2")])
    first, last = ended("sha256:a", 0), ended("sha256:a", 0)
    ended("sha256:a", None)  # it hung
    ended("sha256:b", 1)
    elsewhere = ended("sha256:c", 0, "a100-2")
    submit("dl-core")
    lease = queue.lease("w1", [host()])
    asked = {digest: queue.ended_in_time(lease, "gemm-0", f"sha256:{digest}") for digest in "abc"}
    assert asked == {"a": last, "b": "", "c": ""}
    assert first != last != elsewhere
    assert queue.ended_in_time(lease, "gemm-1", "sha256:a") == ""


def test_runs_without_a_gpu_have_a_past_of_their_own(rooms, queue, submit):
    ran(queue, submit)
    alone = submit("hello")
    assert rooms.runs.past(rooms.runs.get(alone), "gemm-0") == []


def test_the_end_of_a_log_is_in_order(rooms, queue, submit):
    run = submit()
    lease = queue.lease("w1", [host()])
    for i in range(5):
        queue.write(lease, "gemm-0", str(i).encode())
    found, pieces = rooms.runs.last_output(run, limit=3)
    assert found.id == run
    assert [piece.data for piece in pieces] == [b"2", b"3", b"4"]


def test_runs_are_listed_by_what_they_are_for(rooms, queue, submit):
    run = ran(queue, submit)
    again = rooms.runs.rerun(run, by="w1", purpose="verification")[0].id
    assert [one.id for one in rooms.runs.list(purpose="verification").items] == [again]
    assert [one.id for one in rooms.runs.list(purpose="request").items] == [run]
