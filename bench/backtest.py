"""Backtests a change against logs of many decisions, as ``POST /backtests`` does.

``python bench/backtest.py [DECISIONS]``

Two logs: builds of five stacks on 20 targets, of each many images, each asked about several times;
and 4,000 different stacks on 200 targets, where each question was asked five times or once. The
change revokes the entries of two releases of a framework on every target. The baseline decides each
different question twice, without the log: the ratio says what reading and grouping cost.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.evaluate import evaluate
from compatgate.core.stack import parse_stack
from compatgate.documents.sources import Source
from compatgate.kit import clock
from compatgate.kit.principal import Authorship
from compatgate.service.app import Rooms, open_rooms
from compatgate.service.changes.comparison.backtests import apply_edits, backtest_edits
from compatgate.service.changes.comparison.schemas import MAX_QUESTIONS
from compatgate.service.matrix.documents.repository import find_documents
from compatgate.service.matrix.documents.revisions import Edit
from compatgate.service.matrix.snapshots.snapshot import Snapshot

DECISIONS = 100_000
_GPUS = ("A100-SXM4-80GB", "H100-SXM5-80GB", "L4", "L40S")
_RELEASES = (
    {"cuda": "12.1", "cudnn": "8.9.7", "torch": "2.2.0+cu121", "python": "3.11"},
    {"cuda": "12.4", "cudnn": "9.1.0", "torch": "2.4.1+cu124", "python": "3.11"},
    {"cuda": "12.8", "cudnn": "9.10.2", "torch": "2.8.0+cu128", "python": "3.12"},
    {"cuda": "12.4", "cudnn": "9.1.0", "torch": "2.5.1+cu124", "python": "3.12"},
    {"cuda": "12.2", "cudnn": "8.9.7", "tensorflow": "2.15.1", "python": "3.11"},
)
_REVOKED = (1, 3)
HEAD = """\
`bench/backtest.py`: a change against a log of decisions on one core, in seconds of its time; goal:
under 60 s for 100,000. Images of one stack are different questions, and are evaluated once.

| stacks | targets | decisions | questions | changed | s | deciding each question twice, s | ratio |
|---|---|---|---|---|---|---|---|"""


class DecisionLog(Struct, frozen=True):
    """A log to backtest against.

    Attributes:
        needs: number of sizes of memory that stacks of one release ask for.
        images: of each stack.
        repeats: how often each question was asked.
    """

    targets: int
    needs: int
    images: int
    repeats: int

    def stacks(self) -> list[dict[str, Any]]:
        """Return the different stacks."""
        if self.needs == 1:
            return list(_RELEASES)
        return [
            {**release, "arch": ["sm_80", "sm_89", "sm_90"], "needs": f"{16 * step}MiB"}
            for step in range(1, self.needs + 1)
            for release in _RELEASES
        ]

    def questions(self) -> Iterator[dict[str, Any]]:
        """Yield different questions; the targets of a stack lie apart."""
        stacks = self.stacks()
        for turn in range(self.targets * self.images):
            image, shift = divmod(turn, self.targets)
            for n, stack in enumerate(stacks):
                yield {
                    "target": f"target-{(n + shift) % self.targets:03}",
                    "stack": stack,
                    "image": f"registry.example/team-{n}/app:build-{image}",
                }


LOGS = (
    DecisionLog(targets=20, needs=1, images=40, repeats=25),
    DecisionLog(targets=200, needs=800, images=1, repeats=5),
)


def documents(targets: int) -> list[dict[str, Any]]:
    """Targets, and an entry for each release of a framework."""
    made: list[dict[str, Any]] = []
    for n in range(targets):
        pool = {"name": "p", "gpu": _GPUS[n % 4], "driver": "580.95.05", "count": 64}
        policy = {"mode": "enforce", "requireEntry": True}
        made.append(_document("Target", f"target-{n:03}", {"pools": [pool], "policy": policy}))
    for n, stack in enumerate(_RELEASES):
        components = {name: f"{version.partition('+')[0]}" for name, version in stack.items()}
        spec = {"targets": ["*"], "components": components, "status": "blessed"}
        made.append(_document("Entry", f"entry-{n}", spec))
    return made


def _document(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    head = {"apiVersion": "compatgate.dev/v1", "kind": kind}
    return {**head, "metadata": {"name": name}, "spec": spec}


def main(decisions: int = DECISIONS) -> str:
    """Measure; the text for the page of results."""
    return "\n".join([HEAD, *(_measure(log, decisions) for log in LOGS)])


def _measure(log: DecisionLog, decisions: int) -> str:
    asked = list(islice(log.questions(), decisions // log.repeats))
    with tempfile.TemporaryDirectory() as folder:
        rooms = open_rooms(str(Path(folder) / "gate.db"))
        text = msgspec.json.encode(documents(log.targets)).decode()
        rooms.matrix.import_documents([Source("bench", text)], Authorship("bench", "measured"))
        _fill(rooms, asked, decisions)
        before = rooms.gate.snapshot()
        edits = _revoke(rooms)
        began = time.process_time()
        found = backtest_edits(rooms.gate, edits, decisions=decisions, questions=MAX_QUESTIONS)
        took = time.process_time() - began
        base = _decide(asked, (before, apply_edits(before, edits)))
        rooms.close()
    changed = sum(group.questions for group in found.groups)
    assert (found.decisions, found.questions) == (decisions, len(asked)), found.remarks
    stacks = len({msgspec.json.encode(body["stack"]) for body in asked})
    return (
        f"| {stacks:,} | {log.targets} | {found.decisions:,} | {found.questions:,} | {changed:,} "
        f"| {took:.2f} | {base:.2f} | {took / base:.2f} x |"
    )


def _decide(asked: Sequence[dict[str, Any]], sides: Sequence[Snapshot]) -> float:
    """Return the seconds to decide each question on both sides."""
    began = time.process_time()
    for body in asked:
        stack = parse_stack(body["stack"], image=body["image"])
        for side in sides:
            target, now, facts = side.targets[body["target"]], clock.now(), side.facts
            evaluate(stack, target, facts=facts, matrix=side.matrix, now=now, with_fixes=False)
    return time.process_time() - began


def _fill(rooms: Rooms, asked: Sequence[dict[str, Any]], decisions: int) -> None:
    """Store decisions in the log: each question once, then all of them again, by others."""
    encoded = map(msgspec.json.encode, asked)
    answered = [rooms.gate.evaluate(one, asked_by="team-0", source="rest") for one in encoded]
    for start in range(0, decisions, 1000):
        numbers = range(start, min(start + 1000, decisions))
        by = f"team-{start // 1000 % 50}"
        some = (answered[n % len(answered)] for n in numbers)
        asked_again = [replace(one, decision=replace(one.decision, asked_by=by)) for one in some]
        rooms.gate.submit(asked_again).result()


def _revoke(rooms: Rooms) -> list[Edit]:
    with rooms.gate.database.reading() as session:
        found = find_documents(session, [("Entry", f"entry-{n}") for n in _REVOKED])
    return [
        Edit(document, replace(document, spec=replace(document.spec, status="revoked")))
        for document in found.values()
    ]


if __name__ == "__main__":
    print(main(int(sys.argv[1]) if len(sys.argv) > 1 else DECISIONS))
