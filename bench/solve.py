"""Time to find stacks over the shipped facts, against one evaluation of the first stack found.

CPU time of this process, median of several rounds. The first search of a process also decodes the
tables of facts that it reads; it is measured apart, in a new process.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime

from compatgate.catalog import load_facts
from compatgate.core.candidates import parse_wants
from compatgate.core.evaluate import evaluate
from compatgate.core.facts import Facts
from compatgate.core.matrix import Matrix
from compatgate.core.request import Target, parse_pool
from compatgate.core.solve import Problem, solve
from compatgate.core.stack import parse_stack

ROUNDS = 5
NOW = datetime(2026, 11, 21, tzinfo=UTC)
H100, A100, V100, K80 = (
    ("580.95.05", "H100-SXM5-80GB"),
    ("535.183.01", "A100-SXM4-80GB"),
    ("535.183.01", "V100-SXM2-16GB"),
    ("470.82.01", "Tesla K80"),
)
QUESTIONS = (
    ("torch>=2.6,flash-attn", (H100,)),
    ("vllm", (H100, A100)),
    ("torch,torchvision,xformers", (A100,)),
    ("torch,jax,tensorflow", (H100,)),
    ("torch,flash-attn", (V100,)),
    ("torch,vllm", (K80,)),
)
"""The last two have no answer: the whole limit of work is spent."""


def main() -> list[str]:
    """Markdown rows: question, milliseconds of the first and of later searches, evaluations."""
    facts = load_facts()
    return [row(facts, number) for number in range(len(QUESTIONS))]


def row(facts: Facts, number: int) -> str:
    """Measure one question."""
    want, pools = QUESTIONS[number]
    problem, one = read(facts, number), None
    found = solve(problem, facts=facts, matrix=Matrix(), now=NOW)
    if found.solutions:
        stack = parse_stack(found.solutions[0].stack)
        target = problem.targets[0]
        one = median(lambda: evaluate(stack, target, facts=facts, now=NOW, with_fixes=False))
    took = median(lambda: solve(problem, facts=facts, matrix=Matrix(), now=NOW))
    command = [sys.executable, __file__, str(number)]
    first = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    ratio = f"{took / one:,.0f} x" if one else "-"
    where = " and ".join(gpu for _, gpu in pools)
    cells = (want, where, f"{first * 1e3:.0f}", f"{took * 1e3:.0f}", str(found.evaluated), ratio)
    return f"| {' | '.join(cells)} |"


def read(facts: Facts, number: int) -> Problem:
    """Return the problem of a question."""
    want, pools = QUESTIONS[number]
    targets = tuple(
        Target("", (parse_pool({"driver": driver, "gpu": gpu}, facts.gpus),))
        for driver, gpu in pools
    )
    return Problem(parse_wants([want]), targets)


def median(call: Callable[[], object]) -> float:
    """Return the median CPU seconds of a call."""
    times = []
    for _ in range(ROUNDS):
        began = time.process_time()
        call()
        times.append(time.process_time() - began)
    return statistics.median(times)


def first_search(number: int) -> float:
    """Return the CPU seconds of the first search of this process, tables of facts included."""
    began = time.process_time()
    facts = load_facts()
    solve(read(facts, number), facts=facts, matrix=Matrix(), now=NOW)
    return time.process_time() - began


if __name__ == "__main__":
    if sys.argv[1:]:
        print(first_search(int(sys.argv[1])))
    else:
        print("\n".join(main()))
