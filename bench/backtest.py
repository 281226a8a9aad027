"""Backtests a change against a log of many decisions, as ``POST /backtests`` does.

``python bench/backtest.py [DECISIONS]``

The log has builds of services on 20 targets: of each stack many images, each asked about several
times. The change revokes the entries of one framework on every target. The baseline decides each
different question twice, without the log: the ratio says what reading and grouping cost.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from compatgate.core.evaluate import evaluate
from compatgate.core.stack import parse_stack
from compatgate.documents.sources import Source
from compatgate.kit import clock
from compatgate.service.backtests.service import apply_edits, backtest_edits
from compatgate.service.gate.service import Gate
from compatgate.service.matrix.repository import find_documents
from compatgate.service.matrix.revisions import Edit
from compatgate.service.matrix.service import Authorship

DECISIONS = 100_000
TARGETS, IMAGES = 20, 40
_GPUS = ("A100-SXM4-80GB", "H100-SXM5-80GB", "L4", "L40S")
_STACKS = (
    {"cuda": "12.1", "cudnn": "8.9.7", "torch": "2.2.0+cu121", "python": "3.11"},
    {"cuda": "12.4", "cudnn": "9.1.0", "torch": "2.4.1+cu124", "python": "3.11"},
    {"cuda": "12.8", "cudnn": "9.10.2", "torch": "2.8.0+cu128", "python": "3.12"},
    {"cuda": "12.4", "cudnn": "9.1.0", "torch": "2.5.1+cu124", "python": "3.12"},
    {"cuda": "12.2", "cudnn": "8.9.7", "tensorflow": "2.15.1", "python": "3.11"},
)
HEAD = """\
`bench/backtest.py`: a change against a log of decisions on one core; goal: under 60 s for 100,000.
Images of one stack are different questions, and are evaluated once.

| decisions | questions | changed | seconds | deciding each question twice, s | ratio |
|---|---|---|---|---|---|"""


def documents() -> list[dict[str, Any]]:
    """Targets, and an entry for each stack."""
    made: list[dict[str, Any]] = []
    for n in range(TARGETS):
        pool = {"name": "p", "gpu": _GPUS[n % 4], "driver": "580.95.05", "count": 64}
        policy = {"mode": "enforce", "requireEntry": True}
        made.append(_document("Target", f"target-{n:02}", {"pools": [pool], "policy": policy}))
    for n, stack in enumerate(_STACKS):
        components = {name: f"{version.partition('+')[0]}" for name, version in stack.items()}
        spec = {"targets": ["*"], "components": components, "status": "blessed"}
        made.append(_document("Entry", f"entry-{n}", spec))
    return made


def _document(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    head = {"apiVersion": "compatgate.dev/v1", "kind": kind}
    return {**head, "metadata": {"name": name}, "spec": spec}


def questions() -> Iterator[dict[str, Any]]:
    """Yield questions for ever; each image is asked about again and again."""
    number = 0
    while True:
        stack = number % len(_STACKS)
        build = number // len(_STACKS) % IMAGES
        target = number // len(_STACKS) // IMAGES % TARGETS
        yield {
            "target": f"target-{target:02}",
            "stack": _STACKS[stack],
            "image": f"registry.example/team-{stack}/app:build-{build}",
        }
        number += 1


def main(decisions: int = DECISIONS) -> str:
    """Measure; the text for the page of results."""
    with tempfile.TemporaryDirectory() as folder:
        gate = Gate.open(str(Path(folder) / "gate.db"))
        text = msgspec.json.encode(documents()).decode()
        gate.matrix.import_documents([Source("bench", text)], Authorship("bench", "measured"))
        _fill(gate, decisions)
        before = gate.snapshot()
        edits = _revoke(gate)
        began = time.perf_counter()
        found = backtest_edits(gate, edits, decisions=decisions)
        took = time.perf_counter() - began
        asked = list(islice(questions(), min(decisions, len(_STACKS) * IMAGES * TARGETS)))
        began = time.perf_counter()
        for side in (before, apply_edits(before, edits)):
            for body in asked:
                stack = parse_stack(body["stack"], image=body["image"])
                target = side.target(body["target"])
                now, facts = clock.now(), side.facts
                evaluate(stack, target, facts=facts, matrix=side.matrix, now=now, with_fixes=False)
        base = time.perf_counter() - began
        gate.close()
    changed = sum(group.questions for group in found.groups)
    assert found.decisions == decisions, found.remarks
    return (
        f"{HEAD}\n| {found.decisions:,} | {found.questions:,} | {changed:,} | {took:.2f} "
        f"| {base:.2f} | {took / base:.2f} x |"
    )


def _fill(gate: Gate, decisions: int) -> None:
    asked = questions()
    for start in range(0, decisions, 1000):
        some = islice(asked, min(1000, decisions - start))
        encoded = [msgspec.json.encode(body) for body in some]
        by = f"team-{start // 1000 % 50}"
        records = [gate.evaluate(one, asked_by=by, source="rest") for one in encoded]
        gate.submit(records).result()


def _revoke(gate: Gate) -> list[Edit]:
    with gate.database.reading() as session:
        found = find_documents(session, [("Entry", "entry-1"), ("Entry", "entry-3")])
    return [
        Edit(document, replace(document, spec=replace(document.spec, status="revoked")))
        for document in found.values()
    ]


if __name__ == "__main__":
    print(main(int(sys.argv[1]) if len(sys.argv) > 1 else DECISIONS))
