"""Worker processes that share a queue: no run is given twice, no slot is shared."""

from __future__ import annotations

import threading
from collections import Counter

from canary_runs import host, suites
from processes import forked

from compatgate.canary.engine import Lease
from compatgate.canary.hosts import Host
from compatgate.service.app import Rooms, open_rooms
from compatgate.service.runs.queue.queue import DatabaseQueue
from compatgate.service.runs.queue.schemas import RunRequest

RUNS = 200
WORKERS = 4


def _work(url: str, name: str, hosts: list[Host]) -> None:
    """Lease and finish until nothing is left; each output says who had the run."""
    rooms = open_rooms(url, overlays=[])
    while lease := rooms.runs.queue.lease(name, hosts):
        rooms.runs.queue.write(lease, "step", f"{name} {lease.attempt}\n".encode())
        rooms.runs.queue.finish(lease, "passed", name, None)
    rooms.close()


def test_hundreds_of_runs_are_finished_once_each_by_four_processes(
    rooms: Rooms, database_url: str
) -> None:
    served = [host("cpu", gpu=None, driver=None, slots=16)]
    rooms.runs.queue.register("w0", served)
    rooms.runs.catalogue = suites
    for _ in range(RUNS):
        rooms.runs.submit(RunRequest("hello", host="cpu"), by="tester")
    spawn = forked()
    workers = [
        spawn.Process(target=_work, args=(database_url, f"w{index}", served))
        for index in range(WORKERS)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(240)
    assert [worker.exitcode for worker in workers] == [0] * WORKERS
    rows = rooms.runs.list(limit=1000).items
    assert Counter(row.state for row in rows) == {"passed": RUNS}
    assert {row.attempts for row in rows} == {1}
    assert len({row.worker for row in rows}) > 1
    for row in rows[::50]:
        (piece,) = rooms.runs.output(row.id)[1]
        assert piece.data.decode() == f"{row.worker} 1\n"
    leased = rooms.audit.list_audit(action="run.leased", limit=1000).items
    assert len({link.subject for link in leased}) == len(leased) == RUNS
    assert rooms.runs.hosts().items[0].busy == 0
    assert rooms.chain.verify().ok


def test_two_workers_on_one_slot_run_one_after_the_other(
    rooms: Rooms, queue: DatabaseQueue, database_url: str
) -> None:
    single = host("single", slots=1)
    queue.register("w1", [single])
    for _ in range(6):
        rooms.runs.submit(RunRequest("smoke", target="prod", host="single"), by="tester")
    busy, overlaps, done = threading.Lock(), [], []

    def work(name: str) -> None:
        own = open_rooms(database_url, overlays=[])
        while len(done) < 6:
            if (lease := own.runs.queue.lease(name, [single])) is None:
                continue
            if not busy.acquire(blocking=False):
                overlaps.append(lease.run.id)
                continue
            own.runs.queue.enter(lease, "running")
            busy.release()
            done.append(lease.run.id)
            own.runs.queue.finish(lease, "passed", "", None)
        own.close()

    threads = [threading.Thread(target=work, args=(f"w{index}",)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not overlaps
    assert len(set(done)) == 6


def test_twenty_runs_fill_the_slots_of_three_hosts(rooms: Rooms, queue: DatabaseQueue) -> None:
    served = [host(f"h{index}", slots=slots) for index, slots in enumerate((1, 2, 4))]
    queue.register("w1", served)
    for _ in range(20):
        rooms.runs.submit(RunRequest("smoke", target="prod"), by="tester")
    rounds: list[int] = []
    while True:
        leases: list[Lease] = []
        while lease := queue.lease("w1", served):
            leases.append(lease)
        if not leases:
            break
        taken = [(lease.host, slot) for lease in leases for slot in lease.slots]
        assert len(set(taken)) == len(taken)
        rounds.append(len(leases))
        for lease in leases:
            queue.finish(lease, "passed", "", None)
    assert rounds == [7, 7, 6]
