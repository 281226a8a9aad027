"""How many durable batches of decisions processes store in one SQLite file.

``python bench/commits.py [--processes 1,2] [--seconds 3] [--folder DIR]``. Each process stores a
batch of eight known decisions, waits a moment as if it answered, and stores the next. *After the
turn*: as the gate does it, which syncs SQLite's log when the next process has its turn. *Inside*:
with ``synchronous = FULL``, SQLite syncs it inside the commit. The folder must be on a disk.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from contextlib import ExitStack, closing
from multiprocessing import get_context
from pathlib import Path
from unittest.mock import patch

from compatgate.kit import clock
from compatgate.kit.database import tables
from compatgate.kit.database.database import Database
from compatgate.kit.database.sqlite import LogSync
from compatgate.service.gate.decisions.batch_store import DecisionWriter, Delivery
from compatgate.service.gate.decisions.batches import WriterChain
from compatgate.service.gate.questions.decider import NewDecision

DECISIONS = 8
PAUSE_SECONDS = 0.0004
BODIES = {"vd_bench": "{}"}
HEAD = """\
`bench/commits.py`: batches of eight decisions that processes store durably in one SQLite file.

| sync | processes | batches/s | p50 ms | p99 ms |
|---|---|---|---|---|"""


def store(path: str, seconds: float, inside: bool) -> list[float]:
    """Store batches for some seconds; how long each took."""
    now = clock.now()
    decisions = [
        NewDecision("vd_bench", now, None, "pass", True, 1, None, f"asker {number}", "bench", 10)
        for number in range(DECISIONS)
    ]
    database, chain = Database.open(path), WriterChain()
    took = []
    with ExitStack() as stack:
        if inside:
            stack.enter_context(patch.object(LogSync, "prepare", lambda *_: None))
        writer = stack.enter_context(closing(DecisionWriter(database)))
        end = time.monotonic() + seconds
        while (began := time.monotonic()) < end:
            with writer.turn:
                batch = chain.make(decisions, {})
                writer.write([Delivery(batch, BODIES)])
            chain.take(batch)
            took.append(time.monotonic() - began)
            time.sleep(PAUSE_SECONDS)
    database.close()
    return took


def row(folder: str | None, processes: int, seconds: float, *, inside: bool) -> str:
    """Measure one shape; a row of the table."""
    with tempfile.TemporaryDirectory(dir=folder) as made:
        path = str(Path(made, "bench.db"))
        with closing(Database.open(path)) as database:
            tables.prepare_schema(database)
        with get_context("spawn").Pool(processes) as pool:
            found = pool.starmap(store, [(path, seconds, inside)] * processes)
    took = sorted(one for each in found for one in each)
    slow = 1000 * took[int(len(took) * 0.99)]
    median = 1000 * statistics.median(took)
    name = "inside the commit" if inside else "after the turn"
    return f"| {name} | {processes} | {len(took) / seconds:,.0f} | {median:.1f} | {slow:.1f} |"


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", default="1,2")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--folder")
    args = parser.parse_args()
    print(HEAD)
    for processes in map(int, args.processes.split(",")):
        for inside in (True, False):
            print(row(args.folder, processes, args.seconds, inside=inside), flush=True)


if __name__ == "__main__":
    main()
