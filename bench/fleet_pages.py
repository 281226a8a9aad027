"""Drift and proposals of a large fleet on PostgreSQL: milliseconds of a server's answers.

``python bench/fleet_pages.py [NODES]``

100,000 nodes of 200 targets, of which 3 % differ from their target and 1 % are silent; 2,000
proposals; 20,000 recorded questions about 1,000 stacks. One process serves; each answer is asked
for in turn with the sign-in page, which is what any page costs. *First* is the first such answer
after the start of the server. Some answers follow a change that is not measured itself.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.facts import Facts
from compatgate.documents.sources import Source
from compatgate.kit import clock
from compatgate.kit.database.database import Database, resolve_url
from compatgate.kit.database.tables import migrate_schema
from compatgate.kit.principal import Authorship
from compatgate.service.app import open_rooms
from compatgate.service.matrix.proposals.schemas import ProposalRequest
from compatgate.service.nodes.merging import merge_nodes, reported_nodes
from compatgate.service.nodes.repository import NodeRow, save_nodes
from compatgate.service.nodes.schemas import Report

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

import postgresql

NODES, TARGETS, PROPOSALS, QUESTIONS, REPEATED = 100_000, 200, 2_000, 20_000, 15
_BATCH = 1000
_GPUS = ("A100-SXM4-80GB", "H100-SXM5-80GB", "L4", "L40S")
_DRIVERS = ("550.127.05", "570.124.06", "580.95.05")
_BY = Authorship("bench", "measured")
HEAD = """\
`bench/fleet_pages.py`: {nodes:,} nodes and {proposals:,} proposals on PostgreSQL; milliseconds.
Goal: under 300.

| answer | first | median | sign-in page, median |
|---|---|---|---|"""


def documents() -> list[dict[str, Any]]:
    """Targets that select nodes by a label, and two entries for each."""
    made: list[dict[str, Any]] = []
    for n in range(TARGETS):
        pool = {"name": "p", "gpu": _GPUS[n % 4], "driver": _DRIVERS[n % 3], "count": 512}
        pool["node"] = {"kernel-modules": "open"}
        match = {"nodeLabels": {"example.com/pool": f"pool-{n:03}"}}
        made.append(_document("Target", f"target-{n:03}", {"pools": [pool], "match": match}))
        for name, cuda in (("old", "12.4.*"), ("new", "12.8.*")):
            spec = {"targets": [f"target-{n:03}"], "components": {"cuda": cuda}}
            made.append(_document("Entry", f"entry-{n:03}-{name}", {**spec, "status": "blessed"}))
    return made


def _document(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    head = {"apiVersion": "compatgate.dev/v1", "kind": kind}
    return {**head, "metadata": {"name": name}, "spec": spec}


def node_rows(count: int, facts: Facts) -> Iterator[NodeRow]:
    """Yield nodes as sources report them; they changed at some time in the last month."""
    now = clock.now()
    kinds = [_make_kind(n, facts) for n in range(3 * TARGETS)]
    for number in range(count):
        target = number % TARGETS
        kind = kinds[target + TARGETS * (1 + number % 2 if number // TARGETS % 33 == 0 else 0)]
        name = f"gpu-{number:06}"
        seen = now - timedelta(days=3 if number % 101 == 0 else 0, seconds=number % 3000)
        changed = now - timedelta(seconds=26 * number)
        labels = {**kind.labels, "kubernetes.io/hostname": name}
        times = {"first_seen_at": changed, "since": changed, "changed_at": changed}
        yield replace(
            kind, name=name, cluster=f"cluster-{target % 8}", labels=labels, seen_at=seen, **times
        )


def _make_kind(number: int, facts: Facts) -> NodeRow:
    """Return a node of a target; of the second and third hundreds, one that drifted."""
    drift, target = divmod(number, TARGETS)
    driver = _DRIVERS[(target + (drift == 1)) % 3]
    labels = {f"feature.node.kubernetes.io/cpu-cpuid.F{n}": "true" for n in range(30)}
    labels["example.com/pool"] = f"pool-{target:03}"
    node = {
        "name": "n",
        "labels": labels,
        "probe": {
            "driver": driver,
            "gpus": [{"gpu": _GPUS[target % 4], "count": 8}],
            "node": {"kernel-modules": "proprietary" if drift == 2 else "open"},
        },
    }
    report = msgspec.convert({"cluster": "c", "nodes": [node]}, Report)
    (row,) = merge_nodes(report, reported_nodes(report, clock.now(), facts), {}, "bench")
    return row


def questions() -> Iterator[dict[str, Any]]:
    """Yield different questions for ever."""
    number = 0
    while True:
        stack = {"cuda": "12.4" if number % 2 else "12.8", "needs": f"{16 + number % 500}MiB"}
        yield {"target": f"target-{number % TARGETS:03}", "stack": {**stack, "arch": ["sm_80"]}}
        number += 1


def main(nodes: int = NODES) -> str:
    """Measure; the text for the page of results."""
    programs = postgresql.programs()
    assert programs is not None, "PostgreSQL is not installed"
    lines = [HEAD.format(nodes=nodes, proposals=PROPOSALS)]
    with postgresql.running(programs) as cluster, tempfile.TemporaryDirectory() as folder:
        number, token = _fill(cluster.url, nodes)
        with _served(cluster.url, folder) as url:
            lines += [_measured(answer, Client(url, token)) for answer in _answers(number)]
    return "\n".join(lines)


def _fill(url: str, count: int) -> tuple[str, str]:
    """Store everything, and return the id of a proposal and a token."""
    migrate_schema(Database(resolve_url(url)))
    rooms = open_rooms(url)
    text = msgspec.json.encode(documents()).decode()
    rooms.matrix.import_documents([Source("bench", text)], _BY)
    rows = node_rows(count, rooms.gate.facts)
    while batch := list(islice(rows, _BATCH)):
        with rooms.gate.database.writing() as session:
            save_nodes(session, batch, ())
    asked = [msgspec.json.encode(body) for body in islice(questions(), QUESTIONS)]
    for start in range(0, len(asked), _BATCH):
        part = asked[start : start + _BATCH]
        records = [rooms.gate.evaluate(one, asked_by="bench", source="rest") for one in part]
        rooms.gate.submit(records).result()
    number = ""
    for n in range(PROPOSALS):
        entry = {"entry": f"entry-{n % TARGETS:03}-old", "status": "deprecated"}
        request = msgspec.convert({"entries": [entry]}, ProposalRequest)
        number = rooms.proposals.propose(request, _BY).row.id
    token = rooms.tokens.create("bench", ["read", "propose", "bless", "operate"], by="bench")
    rooms.close()
    return number, token.secret


class Answer(Struct, frozen=True):
    """An answer to measure.

    Attributes:
        body: makes the body of a time; None: it is a GET.
        before: path and body of a change that comes before each time; ``{id}`` in ``path`` is the
            id in the answer to it.
    """

    name: str
    path: str
    body: Callable[[int], Any] | None = None
    before: tuple[str, Callable[[int], Any]] | None = None


def _answers(proposal: str) -> list[Answer]:
    """List what is measured."""
    propose = "/api/v1/proposals"
    return [
        Answer("GET /drift", "/api/v1/drift"),
        Answer("GET /drift of a target", "/api/v1/drift?target=target-017&limit=1000"),
        Answer("GET /drift, stale", "/api/v1/drift?stale=true"),
        Answer("page of drift", "/ui/drift"),
        Answer("POST /nodes, 100 nodes that changed", "/api/v1/nodes", _report),
        Answer(
            "GET /drift after such a report", "/api/v1/drift", before=("/api/v1/nodes", _report)
        ),
        Answer("GET /nodes", "/api/v1/nodes"),
        Answer("GET /proposals", propose),
        Answer("page of proposals", "/ui/proposals"),
        Answer("GET /proposals/{id}", f"{propose}/{proposal}"),
        Answer("page of a proposal", f"/ui/proposals/{proposal}"),
        Answer("POST /proposals, a driver of a pool", propose, _another_driver),
        Answer(
            "POST /proposals/{id}/backtest",
            f"{propose}/{{id}}/backtest",
            lambda _: {"days": 30},
            (propose, _another_driver),
        ),
        Answer(
            "POST /proposals/{id}/merge",
            f"{propose}/{{id}}/merge",
            lambda _: {},
            (propose, _another_driver),
        ),
        Answer("GET /drift after a new entry", "/api/v1/drift", before=("/api/v1/entries", _entry)),
        Answer(
            "POST /backtests, an entry of one target",
            "/api/v1/backtests",
            lambda _: {"documents": [_revoked()], "days": 30},
        ),
    ]


def _report(turn: int) -> dict[str, Any]:
    """Return a report of nodes of one cluster with another driver than at the turn before."""
    nodes = [
        {
            "name": f"gpu-{TARGETS * n:06}",
            "probe": {
                "driver": _DRIVERS[turn % 3],
                "gpus": [{"gpu": _GPUS[0], "count": 8}],
                "node": {"kernel-modules": "open"},
            },
        }
        for n in range(100)
    ]
    return {"cluster": "cluster-0", "nodes": nodes}


def _another_driver(turn: int) -> dict[str, Any]:
    name, driver = f"target-{turn:03}", _DRIVERS[(turn + 1) % 3]
    return {"pools": [{"target": name, "set": {"driver": driver}}], "reason": "measured"}


def _entry(turn: int) -> dict[str, Any]:
    spec = {
        "targets": [f"target-{turn:03}"],
        "components": {"cuda": "13.0.*"},
        "status": "candidate",
    }
    return {"metadata": {"name": f"made-{turn}"}, "spec": spec, "reason": "measured"}


def _revoked() -> dict[str, Any]:
    document = next(one for one in documents() if one["kind"] == "Entry")
    return {**document, "spec": {**document["spec"], "status": "revoked"}}


@contextmanager
def _served(database: str, folder: str) -> Iterator[str]:
    """Run a server, and give its URL."""
    command = [sys.executable, "-m", "compatgate", "serve", "--port", "0", "--workers", "1"]
    with Path(folder, "log").open("w") as log:
        server = subprocess.Popen(
            [*command, "--database", database], stdout=subprocess.PIPE, stderr=log, text=True
        )
        try:
            assert server.stdout
            yield server.stdout.readline().split()[-1]
        finally:
            server.terminate()
            server.wait(30)


class Client(Struct, frozen=True):
    """Asks a server."""

    url: str
    token: str

    def fetch(self, path: str, body: Any = None) -> tuple[float, Any]:
        """Return the milliseconds of an answer, and the answer if it is JSON."""
        data = None if body is None else msgspec.json.encode(body)
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.token}"}
        request = urllib.request.Request(self.url + path, data, headers)
        began = time.perf_counter()
        with urllib.request.urlopen(request, timeout=120) as answer:
            text = answer.read()
        took = (time.perf_counter() - began) * 1000
        return took, msgspec.json.decode(text) if text.startswith(b"{") else None

    def ask(self, answer: Answer, turn: int) -> float:
        """Return the milliseconds of an answer, without those of the change before it."""
        path = answer.path
        if answer.before:
            where, body = answer.before
            _, made = self.fetch(where, body(turn))
            path = path.replace("{id}", made.get("id", ""))
        return self.fetch(path, answer.body(turn) if answer.body else None)[0]


def _measured(answer: Answer, client: Client) -> str:
    client.fetch("/ui/sign-in")
    first = client.ask(answer, 0)
    pairs = [
        (client.ask(answer, turn), client.fetch("/ui/sign-in")[0])
        for turn in range(1, REPEATED + 1)
    ]
    median, plain = (statistics.median(side) for side in zip(*pairs, strict=True))
    return f"| {answer.name} | {first:.0f} | {median:.0f} | {plain:.1f} |"


if __name__ == "__main__":
    print(main(int(sys.argv[1]) if len(sys.argv) > 1 else NODES))
