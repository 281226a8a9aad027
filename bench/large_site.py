"""Fill a database with the fleet that the pages are measured with.

200 targets x 2,000 entries, of which each target has about 130 and 100 are for every target; 20,000
nodes, one in 50 with another driver than its target states; 100,000 decisions over 30 days on 400
verdicts; waivers, proposals, and the runs and baselines of ``tests/support/ui_runs.py``.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import msgspec

from compatgate.documents.sources import Source, read_paths
from compatgate.errors import CompatgateError
from compatgate.kit import clock
from compatgate.kit.principal import Authorship
from compatgate.resources import matrix_dir
from compatgate.service.app import Rooms, open_rooms
from compatgate.service.changes.upgrades.schemas import UpgradeRequest
from compatgate.service.gate.decisions.batch_store import DecisionWriter, Delivery
from compatgate.service.gate.decisions.batches import WriterChain
from compatgate.service.gate.questions.decider import AnswerRecord
from compatgate.service.matrix.proposals.schemas import ProposalRequest, ProposedPool
from compatgate.service.nodes.schemas import MAX_NODES, Report

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))

from ui_runs import days_ago, fill_runs

TARGETS, ENTRIES, NODES, DECISIONS = 200, 2_000, 20_000, 100_000
_QUESTIONS, _BATCH, _WAIVERS, _PROPOSALS = 400, 500, 40, 30
_GPUS = ("A100-SXM4-80GB", "H100-SXM5-80GB", "L4", "L40S", "A10", "T4", "H200-SXM-141GB")
_DRIVERS = ("535.183.01", "550.127.05", "570.124.06", "580.95.05")
_STACKS = (
    {"cuda": "12.1.*", "cudnn": "8.9.*", "torch": "~=2.2.0"},
    {"cuda": "12.4.*", "cudnn": "9.1.*", "torch": "~=2.4.0"},
    {"cuda": "12.8.*", "cudnn": "9.10.*", "torch": "2.8.*"},
    {"cuda": "13.0.*", "cudnn": "9.13.*", "torch": "2.9.*"},
    {"cuda": "12.2.*", "cudnn": "8.9.*", "tensorflow": "2.15.*"},
)
_ASKED = (
    {"cuda": "12.1", "cudnn": "8.9.7", "torch": "2.2.2+cu121"},
    {"cuda": "12.4", "cudnn": "9.1.0", "torch": "2.4.1+cu124"},
    {"cuda": "12.8", "cudnn": "9.10.2", "torch": "2.8.0+cu128"},
    {"cuda": "13.0", "cudnn": "9.13.0", "torch": "2.9.0+cu130"},
    {"cuda": "12.2", "cudnn": "9.1.0", "tensorflow": "2.15.0"},
)
_STATUSES = ("blessed", "blessed", "candidate", "deprecated", "revoked")
_TEAMS = ("training", "serving", "vision", "speech", "search", "simulation")


def fill(database: str, workloads: Path) -> None:
    """Fill an empty database.

    Args:
        database: its URL.
        workloads: folder for the workload of the runs, which the server reads, too.
    """
    rooms = open_rooms(database, overlays=[])
    try:
        rooms.matrix.import_documents(
            read_paths([matrix_dir() / "examples"]), Authorship("mara", "the first matrix")
        )
        fleet = Source("fleet.json", msgspec.json.encode(list(make_documents())).decode())
        rooms.matrix.import_documents([fleet], Authorship("mara", "the fleet"))
        fill_runs(rooms, workloads)
        _report_nodes(rooms)
        _decide(rooms)
        asked = UpgradeRequest("fleet-580", target_name(1), _DRIVERS[-1])
        rooms.upgrades.propose(asked, Authorship("mara", "the newest production branch"))
        for number in range(_PROPOSALS):
            pool = ProposedPool(target_name(number), {"driver": _DRIVERS[-1]})
            rooms.proposals.propose(
                ProposalRequest(pools=[pool]), Authorship("ann", f"newer driver, rack {number}")
            )
    finally:
        rooms.close()


def target_name(number: int) -> str:
    """Return the name of a target."""
    return f"target-{number % TARGETS:03}"


def make_documents() -> Iterator[dict[str, Any]]:
    """Make the targets, entries and waivers of the fleet."""
    for n in range(TARGETS):
        pools = [
            {
                "name": f"p{i}",
                "gpu": _GPUS[(n + i) % 7],
                "driver": _DRIVERS[(n + i) % 4],
                "count": 64,
            }
            for i in range(1 + n % 2)
        ]
        yield _document("Target", target_name(n), {"pools": pools})
    for n in range(ENTRIES):
        step = 15 + n % 5
        names = ["*"] if n % 20 == 0 else [target_name(i) for i in range(n % step, TARGETS, step)]
        spec = {
            "targets": names,
            "components": {**_STACKS[n % 5], "python": f">=3.{n % 9 + 1}"},
            "status": _STATUSES[n % len(_STATUSES)],
            "reason": f"suite dl-core passed, number {n}",
        }
        yield _document("Entry", f"entry-{n:04}", spec)
    for n in range(_WAIVERS):
        yield _document("Waiver", f"waiver-{n:02}", _waiver(n))


def _waiver(number: int) -> dict[str, Any]:
    day: date = clock.today() + timedelta(days=number - 10)
    return {
        "rules": ["CG802"],
        "targets": [target_name(number)],
        "owner": f"team-{_TEAMS[number % 6]}",
        "reason": "moves to torch 2.4 soon",
        "expires": day.isoformat(),
        "match": {"components": {"torch": f"2.{number % 3 + 1}.*"}},
    }


def _document(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "compatgate.dev/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def _report_nodes(rooms: Rooms) -> None:
    """Report the nodes of ten clusters two days ago, and one in 200 of them today."""
    clusters = 10
    with days_ago(2):
        for cluster in range(clusters):
            _report(rooms, cluster, range(cluster, NODES, clusters))
    _report(rooms, 0, range(100, NODES, 200))


def _report(rooms: Rooms, cluster: int, numbers: range) -> None:
    nodes = [_node(number) for number in numbers]
    for first in range(0, len(nodes), MAX_NODES):
        body = {"cluster": f"cluster-{cluster}", "nodes": nodes[first : first + MAX_NODES]}
        rooms.nodes.report(msgspec.convert(body, Report), by="nodes-job")


def _node(number: int) -> dict[str, Any]:
    target = number % TARGETS
    driver = _DRIVERS[(target + (number % 50 == 7)) % 4]
    labels = {
        "nvidia.com/gpu.product": f"NVIDIA-{_GPUS[target % 7]}",
        "nvidia.com/gpu.count": "8",
        "nvidia.com/cuda.driver-version.full": driver,
        "topology.kubernetes.io/zone": f"zone-{number % 3}",
    }
    return {
        "name": f"gpu-{number:05}",
        "target": target_name(target),
        "labels": labels,
        "allocatable": {"nvidia.com/gpu": 8},
    }


def _decide(rooms: Rooms) -> None:
    """Decide some questions, and store each answer as often as it takes to make a month."""
    draw = random.Random(20261123)
    answers: list[AnswerRecord] = []
    while len(answers) < _QUESTIONS:
        image = f"registry.example/{draw.choice(_TEAMS)}/app@sha256:{draw.getrandbits(256):064x}"
        target = target_name(int(TARGETS * draw.random() ** 2))
        question = {"target": target, "stack": draw.choice(_ASKED), "image": image}
        body = msgspec.json.encode(question)
        try:
            answers.append(
                rooms.gate.evaluate(body, asked_by="ci", source="hook:kubernetes", image_s=0)
            )
        except CompatgateError as error:
            raise SystemExit(f"{question}: {error}") from error
    chain, writer, known = WriterChain(), DecisionWriter(rooms.gate.database), set[str]()
    began, month = clock.now() - timedelta(days=30), timedelta(days=30)
    for first in range(0, DECISIONS, _BATCH):
        rows, bodies = [], {}
        for number in range(first, first + _BATCH):
            row, body = answers[int(len(answers) * draw.random() ** 2)].row
            at = began + month * (number / DECISIONS)
            who = f"ci-{draw.choice(_TEAMS)}"
            rows.append(msgspec.structs.replace(row, decided_at=at, asked_by=who))
            if row.verdict_id not in known:
                bodies[row.verdict_id] = body
        known.update(bodies)
        made = chain.make(rows, bodies)
        writer.write([Delivery(made, bodies)])
        chain.take(made)
    writer.close()
