"""What GPU packages cost: deciding with 60 of them, and a lock of 200 packages read and judged.

Both are ratios to a baseline of the same run: the same stack without packages, and the start of
``check --pool``.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import combinations, islice
from pathlib import Path

from compatgate.catalog import load_facts
from compatgate.core.evaluate import evaluate
from compatgate.core.facts import Facts
from compatgate.core.request import Target, parse_pool
from compatgate.core.rule import Verdict
from compatgate.core.stack import canonical_key, parse_stack

MOST = 60
LOCKED = 200
ROUNDS = 30
CALLS = 10
RUNS = 15
NOW = datetime(2026, 11, 22, tzinfo=UTC)
TORCH = "torch=2.9.1+cu128"
POOL = {"driver": "580.95.05", "gpu": "H100-SXM5-80GB"}
COMMAND = [str(Path(sys.executable).with_name("compatgate")), "check"]
ON = ["--pool", ",".join(f"{key}={value}" for key, value in POOL.items())]


def main() -> list[str]:
    """Markdown rows: each case with its medians in milliseconds and their ratio."""
    facts = load_facts()
    packages = fitting_packages(facts)
    return [deciding(facts, packages), first_asked(facts, packages), reading(packages)]


def fitting_packages(facts: Facts) -> dict[str, str]:
    """Choose up to 60 packages with facts that fit without a remark, newest releases first."""
    chosen: dict[str, str] = {}
    libraries = facts.cuda_components.by_package
    versions = {name: [*map(str, facts.recorded_versions(name))] for name in sorted(facts.recorded)}
    versions |= {
        name: [*libraries[name].toolkits]
        for name in libraries
        if name not in versions and name.endswith("-cu12") and "runtime" not in name
    }
    for name, known in versions.items():
        if canonical_key(name) in map(canonical_key, chosen):
            continue  # another build of a component that has been chosen
        for version in reversed(known):
            if ask(facts, {**chosen, name: version}).verdict == "pass":
                chosen[name] = version
                break
        if len(chosen) == MOST:
            break
    return chosen


def ask(facts: Facts, packages: dict[str, str]) -> Verdict:
    """Decide on torch with these packages."""
    stack = parse_stack({"torch": TORCH.partition("=")[2], **packages})
    target = Target("", (parse_pool(POOL, facts.gpus),))
    return evaluate(stack, target, facts=facts, now=NOW)


def deciding(facts: Facts, packages: dict[str, str]) -> str:
    """Compare deciding with and without the packages, in turns."""
    pool = parse_pool(POOL, facts.gpus)
    target = Target("", (pool,))
    base = {"torch": TORCH.partition("=")[2]}
    alone, full = parse_stack(base), parse_stack({**base, **packages})
    with_packages, without = in_turns(
        lambda: evaluate(full, target, facts=facts, now=NOW),
        lambda: evaluate(alone, target, facts=facts, now=NOW),
        rounds=ROUNDS,
        calls=CALLS,
    )
    return row(f"deciding with {len(packages)} packages / without", with_packages, without)


def first_asked(facts: Facts, packages: dict[str, str]) -> str:
    """Compare stacks that were never asked about, each without two of the packages."""
    target = Target("", (parse_pool(POOL, facts.gpus),))
    base = {"torch": TORCH.partition("=")[2]}
    alone = parse_stack(base)
    others = (
        parse_stack({**base, **{n: v for n, v in packages.items() if n not in pair}})
        for pair in combinations(packages, 2)
    )
    fresh = iter(list(islice(others, ROUNDS * CALLS + 1)))
    with_packages, without = in_turns(
        lambda: evaluate(next(fresh), target, facts=facts, now=NOW),
        lambda: evaluate(alone, target, facts=facts, now=NOW),
        rounds=ROUNDS,
        calls=CALLS,
    )
    return row("the same, each stack asked about for the first time", with_packages, without)


def reading(packages: dict[str, str]) -> str:
    """Compare ``check --lock`` of 200 packages with ``check --stack``, in turns."""
    others = {f"ordinary-{number}": "1.0" for number in range(LOCKED - len(packages) - 1)}
    with tempfile.TemporaryDirectory() as folder:
        lock = Path(folder, "requirements.txt")
        pinned = {"torch": "2.9.1+cu128", **packages, **others}
        lock.write_text("".join(f"{name}=={version}\n" for name, version in pinned.items()))
        with_lock, start = in_turns(
            lambda: run([*COMMAND, *ON, "--lock", str(lock)]),
            lambda: run([*COMMAND, *ON, "--stack", "cuda=12.2,arch=sm_80"]),
            rounds=RUNS,
            calls=1,
        )
    return row(f"a lock of {len(pinned)} packages / start of `check --pool`", with_lock, start)


def run(command: list[str]) -> None:
    """Run a command for its time."""
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


def in_turns(
    one: Callable[[], object], other: Callable[[], object], *, rounds: int, calls: int
) -> tuple[float, float]:
    """Return the median seconds of two calls that take turns, after one call of each."""
    times: tuple[list[float], list[float]] = ([], [])
    one()
    other()
    for _ in range(rounds):
        for call, column in zip((one, other), times, strict=True):
            start = time.perf_counter()
            for _ in range(calls):
                call()
            column.append((time.perf_counter() - start) / calls)
    return statistics.median(times[0]), statistics.median(times[1])


def row(title: str, ours: float, base: float) -> str:
    """Write a row of a Markdown table."""
    return f"| {title} | {ours * 1e3:.2f} | {base * 1e3:.2f} | {ours / base:.1f} x |"


if __name__ == "__main__":
    print(*main(), sep="\n")
