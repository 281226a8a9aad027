"""How fast workers lease and finish queued runs, and that none is leased twice.

``python bench/run_queue.py [--runs 1000] [--workers 4] [--database URL]``

Every run is leased, enters its three states, writes a line of output and ends, each in a
transaction of its own, and all but the output with a link in the audit chain. The time is from the
first lease to the last end; one worker alone is the baseline.
"""

from __future__ import annotations

import argparse
import tempfile
from multiprocessing import get_context
from pathlib import Path

from compatgate.canary.hosts import Host
from compatgate.service.app import Rooms, open_rooms
from compatgate.service.runs.queue.models import RunRow
from compatgate.service.runs.queue.schemas import RunRequest

HOST = Host("bench", executor="process", slots=64)
HEAD = """\
`bench/run_queue.py`: queued runs leased, taken through their states and finished by worker
processes; the ratio is to one worker. Goal: no run is leased twice.

| database | runs | workers | leased twice | runs/s | x one worker |
|---|---|---|---|---|---|"""


def _work(url: str, name: str) -> None:
    rooms = open_rooms(url, overlays=[])
    queue = rooms.runs.queue
    while lease := queue.lease(name, [HOST]):
        for state in ("preparing", "running", "judging"):
            queue.enter(lease, state)  # type: ignore[arg-type]
        queue.write(lease, "step", b"a line\n")
        queue.finish(lease, "passed", "", None)
    rooms.close()


def measure(rooms: Rooms, url: str, runs: int, workers: int) -> tuple[float, int]:
    """Runs a second, and how many were leased more than once."""
    for _ in range(runs):
        rooms.runs.submit(RunRequest("hello", host=HOST.name), by="bench")
    spawn = get_context("spawn")
    processes = [spawn.Process(target=_work, args=(url, f"w{n}")) for n in range(workers)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    rows = _newest(rooms, runs)
    ends = [row.finished_at for row in rows if row.state == "passed" and row.finished_at]
    starts = [row.started_at for row in rows if row.started_at]
    if len(ends) < runs:
        raise SystemExit(f"{runs - len(ends)} of {runs} runs were not finished")
    seconds = (max(ends) - min(starts)).total_seconds()
    return runs / seconds, sum(row.attempts != 1 for row in rows)


def _newest(rooms: Rooms, count: int) -> list[RunRow]:
    rows: list[RunRow] = []
    cursor = None
    while len(rows) < count:
        page = rooms.runs.list(cursor=cursor, limit=min(1000, count - len(rows)))
        rows += page.items
        cursor = page.next
    return rows


def table(url: str, runs: int, workers: int) -> str:
    """The table for a database."""
    rooms = open_rooms(url, overlays=[])
    rooms.runs.queue.register("w0", [HOST])
    kind = "SQLite" if rooms.gate.database.is_sqlite else "PostgreSQL"
    alone, twice = measure(rooms, url, runs, 1)
    lines = [HEAD, f"| {kind} | {runs:,} | 1 | {twice} | {alone:.0f} | 1.00 |"]
    rate, twice = measure(rooms, url, runs, workers)
    lines.append(f"| {kind} | {runs:,} | {workers} | {twice} | {rate:.0f} | {rate / alone:.2f} |")
    rooms.close()
    return "\n".join(lines)


def main(runs: int = 1000, workers: int = 4, database: str | None = None) -> str:
    """The table."""
    if database:
        return table(database, runs, workers)
    with tempfile.TemporaryDirectory() as folder:
        return table(str(Path(folder) / "gate.db"), runs, workers)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--database", help="to use instead of an SQLite file of its own")
    print(main(**vars(parser.parse_args())))
