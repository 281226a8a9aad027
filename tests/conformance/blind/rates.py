"""Print how often compatgate is right about the blind sample.

``python tests/conformance/blind/rates.py [--open] [--misses]``

docs/explanation/truth.md says how the samples were taken. Lines of ``learnt.txt`` name a file and a
thread of it that was looked at after a measurement, or ``*`` for all: it is counted apart.
``--open`` counts what leaves rows unknown, without showing a row; ``--misses`` shows each miss.
"""

from __future__ import annotations

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from compatgate.catalog import load_facts
from compatgate.check.question import read_pool
from compatgate.core.evaluate import evaluate
from compatgate.core.facts import Facts
from compatgate.core.request import Policy, Target, parse_pool
from compatgate.core.stack import parse_stack, parse_stack_text
from compatgate.core.triage import find_causes
from compatgate.errors import CompatgateError

HERE = Path(__file__).parent
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
SPELLINGS = {",arch=arm64": ",cpu=aarch64"}
"""What the rows spell as no pool is spelt. The file stays as it was committed."""
ANSWERS = {"pass": "works", "warn": "works", "fail": "fails", "unknown": "unknown"}
RESULTS = ("right", "unknown", "false pass", "false fail", "bad input")
MERGED = {
    "cublas-gpu": "cublas-not-supported",
    "driver-libraries-mixed": "driver-library-mismatch",
}
"""Labels of texts whose cause was merged with another one."""
TEXT_RESULTS = ("right", "not recognised", "wrong, likely", "wrong, certain")


class Judged(NamedTuple):
    """A row or a text, its kind, and how the answer compares with what happened."""

    item: dict[str, Any]
    kind: str
    result: str
    why: str


def judge_row(row: dict[str, Any], facts: Facts) -> Judged:
    """Ask about a row as `compatgate check --pool` does."""
    asked = row["pool"]
    for wrong, right in SPELLINGS.items():
        asked = asked.replace(wrong, right)
    try:
        pool = parse_pool(read_pool(asked), facts.gpus)
        stack = parse_stack(parse_stack_text(row["stack"]))
    except CompatgateError as error:
        return Judged(row, row["of"], "bad input", str(error))
    target = Target("", (pool,), Policy())
    verdict = evaluate(stack, target, facts=facts, matrix=None, now=NOW, with_fixes=False)
    answer = ANSWERS[verdict.verdict]
    why = "; ".join(
        f"{finding.rule} {finding.outcome}: {finding.message}"
        for finding in verdict.findings
        if finding.outcome in ("fail", "unknown", "warn")
    )
    if answer == row["outcome"]:
        result = "right"
    elif answer == "unknown":
        result = "unknown"
    else:
        result = "false pass" if answer == "works" else "false fail"
    return Judged(row, row["of"], result, why)


def judge_text(text: dict[str, Any], facts: Facts) -> Judged:
    """Triage a text; of one whose cause is unknown nothing may be said."""
    causes = find_causes(text["text"], facts.error_signatures)
    why = ", ".join(f"{one.cause.id} ({one.confidence}, {one.signature})" for one in causes)
    first = causes[0].cause.id if causes else "unknown"
    if first == MERGED.get(text["cause"], text["cause"]):
        result = "right"
    elif not causes:
        result = "not recognised"
    else:
        result = f"wrong, {causes[0].confidence}"
    return Judged(text, text["area"], result, why)


def print_rates(title: str, judged: list[Judged], results: tuple[str, ...]) -> None:
    """Print a table, all and each kind; nothing where no item is left."""
    if not judged:
        return
    print(f"\n## {title}\n\n| kind | all | {' | '.join(results)} |")
    print(f"|---|---|{'---|' * len(results)}")
    kinds: dict[str, Counter[str]] = defaultdict(Counter)
    for one in judged:
        kinds["all"][one.result] += 1
        kinds[one.kind][one.result] += 1
    for kind, counts in sorted(kinds.items(), key=lambda pair: -pair[1].total()):
        cells = " | ".join(str(counts[result]) for result in results)
        print(f"| {kind} | {counts.total()} | {cells} |")


def misses(judged: list[Judged]) -> Iterator[str]:
    """Describe each item whose answer is not what happened."""
    for one in judged:
        if one.result != "right":
            asked = one.item.get("stack") or one.item["text"].splitlines()[0][:90]
            happened = one.item.get("outcome") or one.item["cause"]
            pool = one.item.get("pool", "")
            yield f"{one.result}: {happened} | {pool} | {asked} | {one.item['thread']}"
            yield f"    {one.why}"


def measure(
    name: str, judge: Callable[[dict[str, Any], Facts], Judged], facts: Facts
) -> tuple[list[Judged], list[Judged]]:
    """Judge a file; return the blind items, and those that were learnt from."""
    items = yaml.safe_load((HERE / name).read_text(encoding="utf-8"))
    lines = (HERE / "learnt.txt").read_text(encoding="utf-8").splitlines()
    learnt = {line.split()[1] for line in lines if line.split()[0] == name}
    judged = [judge(item, facts) for item in items]
    known = [one for one in judged if "*" in learnt or one.item["thread"] in learnt]
    return [one for one in judged if one not in known], known


def count_open(judged: list[Judged]) -> Counter[tuple[str, str]]:
    """Count the findings that leave rows unknown, by rule and wording, without versions."""
    counts: Counter[tuple[str, str]] = Counter()
    for one in judged:
        if one.result == "unknown":
            found = re.findall(r"(CG\d+) unknown: ([^;]*)", one.why)
            counts.update(
                {(rule, re.sub(r"[\w.+-]*\d[\w.+-]*", "#", text)) for rule, text in found}
            )
    return counts


def main() -> None:
    for line in (HERE / "SHA256SUMS").read_text(encoding="utf-8").splitlines():
        digest, name = line.split()
        same = sha256((HERE / name).read_bytes()).hexdigest() == digest
        print(f"{name}: {'as committed before the first question' if same else 'CHANGED'}")
    facts = load_facts(overlays=[])
    everything: list[Judged] = []
    for path in sorted(HERE.glob("rows*.yaml")):
        rows, learnt = measure(path.name, judge_row, facts)
        print_rates(f"{path.stem}", rows, RESULTS)
        stated = [one for one in rows if "driver" not in one.item.get("assumed", ())]
        print_rates(f"{path.stem}, with a stated driver", stated, RESULTS)
        print_rates(f"{path.stem}, learnt from", learnt, RESULTS)
        everything += [*rows, *learnt]
    if "--open" in sys.argv:
        print("\n## What leaves rows unknown\n")
        print(
            *(f"{n} {rule} {text}" for (rule, text), n in count_open(everything).most_common()),
            sep="\n",
        )
    for path in sorted(HERE.glob("texts*.yaml")):
        texts, learnt = measure(path.name, judge_text, facts)
        print_rates(f"{path.stem}", texts, TEXT_RESULTS)
        print_rates(f"{path.stem}, learnt from", learnt, TEXT_RESULTS)
        everything += [*texts, *learnt]
    if "--misses" in sys.argv:
        print("\n## Misses\n")
        print(*misses(everything), sep="\n")


if __name__ == "__main__":
    main()
