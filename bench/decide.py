"""Time to decide in memory, as the matrix grows: 100 to 100,000 entries.

Entries are spread over targets (100 each), as in a fleet; the question is about one target. The
growth that counts is the ratio of the medians at 100,000 and at 100 entries, taken in alternating
rounds of one process so that both see the same machine.
"""

from __future__ import annotations

import statistics
import time
from datetime import UTC, datetime

from compatgate.catalog import load_facts
from compatgate.core.constraints import parse_constraint
from compatgate.core.evaluate import evaluate
from compatgate.core.matrix import Entry, EntryIndex, Matrix
from compatgate.core.request import Policy, Target, parse_pool
from compatgate.core.stack import parse_stack, parse_stack_text

SIZES = (100, 1_000, 10_000, 100_000)
PER_TARGET = 100
ROUNDS = 30
CALLS = 20
NOW = datetime(2026, 11, 21, tzinfo=UTC)

STACKS = {
    "pass": "cuda=12.4,cudnn=9.1.0,torch=2.4.1,arch=sm_80+sm_90+compute_90",
    "warn": "cuda=13.1,cudnn=9.17.1,arch=sm_80+sm_90",
    "fail, with fixes": "cuda=12.4,cudnn=8.9.7,torch=2.4.1,arch=sm_80",
}


def entry(number: int) -> Entry:
    """One of a fleet's entries; every hundredth target is the one that is asked about."""
    components = {
        "driver": ">=535.104.05,<600",
        "cuda": f"12.{number % 7}.*",
        "cudnn": f"9.{number % 25}.*",
        "torch": f"~=2.{number % 14}.0",
    }
    if number % PER_TARGET == 0:
        components = {"driver": ">=580,<581"}
    return Entry(
        name=f"entry-{number}",
        targets=(f"target-{number // PER_TARGET}",),
        components={name: parse_constraint(name, text) for name, text in components.items()},
        status="blessed",
    )


def main() -> list[str]:
    """Markdown rows: the medians in microseconds, and the growth."""
    facts = load_facts()
    pool = parse_pool({"driver": "580.95.05", "gpu": "A100-SXM4-80GB"}, facts.gpus)
    target = Target("target-0", (pool,), Policy(require_entry=True))
    matrices = {size: Matrix(1, EntryIndex(map(entry, range(size)))) for size in SIZES}
    rows = []
    for title, text in STACKS.items():
        stack = parse_stack(parse_stack_text(text))
        medians = measure(stack, target, facts, matrices)
        growth = medians[SIZES[-1]] / medians[SIZES[0]]
        figures = " | ".join(f"{medians[size]:.0f}" for size in SIZES)
        rows.append(f"| {title} | {figures} | {growth:.2f} x |")
    return rows


def measure(stack, target, facts, matrices) -> dict[int, float]:
    """Median microseconds per decision and matrix size, sizes taking turns."""
    times: dict[int, list[float]] = {size: [] for size in matrices}
    for matrix in matrices.values():
        evaluate(stack, target, facts=facts, matrix=matrix, now=NOW)
    for _ in range(ROUNDS):
        for size, matrix in matrices.items():
            start = time.perf_counter()
            for _ in range(CALLS):
                evaluate(stack, target, facts=facts, matrix=matrix, now=NOW)
            times[size].append((time.perf_counter() - start) / CALLS * 1e6)
    return {size: statistics.median(values) for size, values in times.items()}


if __name__ == "__main__":
    print(*main(), sep="\n")
