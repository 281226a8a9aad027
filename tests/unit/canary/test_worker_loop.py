import threading
import time

import msgspec
import pytest
from engine_edges import Memory, Script, exited, lines

from compatgate.canary.hosts import Host
from compatgate.canary.worker import Worker
from compatgate.errors import InfrastructureError

HOSTS = (Host(name="h", gpu="A100-SXM4-80GB", slots=2),)


class Leases(Memory):
    """Hands out the leases of a list."""

    def __init__(self, *leases):
        super().__init__()
        self.waiting = list(leases)
        self.ends = []
        self.busy = 0
        self.most = 0

    def lease(self, worker, hosts):
        if not self.waiting:
            return None
        found = self.waiting.pop(0)
        if isinstance(found, Exception):
            raise found
        self.busy += 1
        self.most = max(self.most, self.busy)
        return found

    def results(self, lease):
        return []

    def finish(self, lease, outcome, reason, evidence):
        self.busy -= 1
        self.ends.append((lease.run.id, outcome))


@pytest.fixture
def leases(lease, run):
    return lambda n: [
        msgspec.structs.replace(lease, run=msgspec.structs.replace(run, id=f"run_{i}"))
        for i in range(n)
    ]


class Slow(Script):
    """Every job prints a good report after a moment."""

    def start(self, prepared):
        self.jobs.append((lines(1.0), exited()))
        time.sleep(0.02)
        return super().start(prepared)


def test_it_works_until_nothing_is_left(context, leases):
    queue = Leases(*leases(5))
    Worker("w", queue, HOSTS, {"h": context(Slow(), queue)}, idle=0.01).run(once=True)
    assert sorted(queue.ends) == [(f"run_{i}", "passed") for i in range(5)]


def test_no_more_runs_at_once_than_slots(context, leases):
    queue = Leases(*leases(6))
    Worker("w", queue, HOSTS, {"h": context(Slow(), queue)}, idle=0.01).run(once=True)
    assert queue.most == 2


def test_concurrency_bounds_it_further(context, leases):
    queue = Leases(*leases(3))
    contexts = {"h": context(Slow(), queue)}
    Worker("w", queue, HOSTS, contexts, concurrency=1, idle=0.01).run(once=True)
    assert queue.most == 1


def test_a_queue_that_is_away_is_asked_again(context, leases):
    queue = Leases(InfrastructureError("the database is away"), *leases(1))
    worker = Worker("w", queue, HOSTS, {"h": context(Slow(), queue)}, idle=0.01)
    thread = threading.Thread(target=worker.run)
    thread.start()
    _until(lambda: queue.ends)
    worker.stop()
    thread.join(5)
    assert not thread.is_alive()


def test_a_stopped_worker_lets_its_runs_end_within_the_grace(context, leases):
    queue = Leases(*leases(1))
    worker = Worker("w", queue, HOSTS, {"h": context(Slow(), queue)}, idle=0.01)
    thread = threading.Thread(target=worker.run)
    thread.start()
    _until(lambda: queue.busy)
    worker.stop()
    thread.join(5)
    worker.drain(5)
    assert queue.ends == [("run_0", "passed")]
    assert queue.retried is None


def test_after_the_grace_a_run_goes_back_to_the_queue(context, leases):
    queue, executor = Leases(*leases(1)), Script(("hang", None))
    worker = Worker("w", queue, HOSTS, {"h": context(executor, queue)}, idle=0.01)
    thread = threading.Thread(target=worker.run)
    thread.start()
    _until(lambda: executor.alive)
    worker.stop()
    thread.join(5)
    worker.drain(0.05)
    assert queue.retried == "its worker was stopped"
    assert not executor.alive


def test_what_ended_runs_left_is_swept_and_nothing_else(context, leases):
    executor = Script()
    executor.leftovers = {"run_ended", "run_active", "run_of_another_database"}
    worker = Worker("w", Leases(), HOSTS, {"h": context(executor, Leases())})
    assert worker.sweep("h", lambda ids: {"run_ended"} & set(ids)) == 1
    assert executor.cleaned == ["run_ended"]


def _until(holds, seconds=5):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.005)


def test_a_host_that_is_away_takes_no_runs_until_it_answers(context, leases):
    class Asked(Leases):
        def lease(self, worker, hosts):
            return super().lease(worker, hosts) if hosts else None

    queue, executor = Asked(*leases(3)), Slow()
    executor.fail_prepare = InfrastructureError("the engine is away")
    executor.is_away = True
    worker = Worker(
        "w", queue, HOSTS[:1], {"h": context(executor, queue)}, concurrency=1, probe=0.01
    )
    thread = threading.Thread(target=worker.run)
    thread.start()
    _until(lambda: executor.asked > 3)
    assert len(queue.waiting) == 2, "only the first run met it"
    assert queue.away == {"h": "the engine is away"}
    executor.fail_prepare, executor.is_away = None, False
    _until(lambda: len(queue.ends) == 2)
    assert queue.away == {"h": ""}
    worker.stop()
    thread.join(5)


def test_once_looks_at_each_host_before_it_takes_a_run(context, leases):
    class Asked(Leases):
        def lease(self, worker, hosts):
            return super().lease(worker, hosts) if hosts else None

    queue, executor = Asked(*leases(1)), Slow()
    executor.is_away = True
    Worker("w", queue, HOSTS, {"h": context(executor, queue)}, idle=0.01).run(once=True)
    assert (queue.away, len(queue.waiting)) == ({"h": "the engine is away"}, 1)
