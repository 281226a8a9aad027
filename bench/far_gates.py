"""What many far gates ask of the central gate: polls of the bundle, and decisions delivered.

``python bench/far_gates.py [--gates 10000] [--decisions 1000000] [--poll 60] [--entries 2000]
[--changes 4] [--database URL]``

Costs are measured on this machine: a poll without news, the download of a new bundle, its
verification at the far gate, and batches of decisions stored by many writers. An hour of so many
gates is then simulated on paper: each polls with an offset and a jitter of its own, decides at
random times, and delivers what it decided after its next poll, as a batch of its own chain. The
database is SQLite in a folder of the run's own, or the empty one that ``--database`` names.
"""

from __future__ import annotations

import argparse
import gzip
import http.client
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from served import HERE, Served

HOUR = 3600
BUNDLE = "/api/v1/bundle"
POLLS = 3000
DOWNLOADS = 60
WRITERS = 500
TRANSACTION = 50
"""Deliveries of far gates that the central gate stores in one transaction."""
HEAD = """\
`bench/far_gates.py`: {gates:,} read-only gates poll the signed bundle every {poll:.0f} s and
deliver {decisions:,} decisions an hour. *Measured* on this machine ({cores} cores, {database});
*on paper*: an hour simulated with these costs. Entries of a real matrix are less alike, so its
bundle compresses less.

| measured | |
|---|---|"""
MATRIX = """\
apiVersion: compatgate.dev/v1
kind: Target
metadata: {name: prod-a100}
spec:
  pools: [{name: a100-80, gpu: A100-SXM4-80GB, driver: 535.183.01}]
  policy: {requireEntry: true}
"""
ENTRY = """\
---
apiVersion: compatgate.dev/v1
kind: Entry
metadata: {{name: entry-{number}}}
spec:
  targets: [prod-a100]
  components: {{driver: ">=535.104.05,<536", cuda: "12.4.*", triton: "3.0.{number}"}}
  status: blessed
  reason: suite dl-core passed on staging
"""


@dataclass
class Costs:
    """What was measured; times in microseconds of processor time of the side that is named."""

    poll_us: float
    poll_bytes: int
    download_us: float
    bundle_bytes: int
    compressed_bytes: int
    verify_ms: float
    delivery_us: float
    decision_us: float
    decision_bytes: float


@contextmanager
def central_gate(folder: Path, entries: int) -> Iterator[tuple[Served, Path]]:
    """Run the gate with a matrix and a key; give it and the public key."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    key = Ed25519PrivateKey.generate()
    private, public, matrix = folder / "key.pem", folder / "key.pub", folder / "matrix.yaml"
    private.touch(mode=0o600)
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(
        key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    matrix.write_text(MATRIX + "".join(ENTRY.format(number=n) for n in range(entries)))
    command = [sys.executable, "-m", "compatgate", "serve", "--port", "0", "--matrix", str(matrix)]
    command += ["--database", str(folder / "central.db"), "--signing-key", str(private)]
    environment = {**os.environ, "PYTHONPATH": str(HERE), "XDG_DATA_HOME": str(folder)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            yield Served(process, int(line.rpartition(":")[2])), public
        finally:
            process.terminate()


def ask_often(server: Served, count: int, headers: dict[str, str]) -> tuple[float, int, Any]:
    """Return microseconds of the server for a request, bytes of an answer, and the last answer."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    size = 0
    began = server.cpu_seconds()
    for _ in range(count):
        connection.request("GET", BUNDLE, headers=headers)
        answer = connection.getresponse()
        body = answer.read()
        size = len(body) + sum(len(n) + len(v) + 4 for n, v in answer.getheaders()) + 20
    took = server.cpu_seconds() - began
    connection.close()
    return took / count * 1e6, size, (answer.status, answer.headers["ETag"], body)


def measure_verification(content: bytes, public: Path) -> float:
    """Return milliseconds of processor time that a far gate takes to accept a bundle."""
    from compatgate.service.gate.bundles import read_bundle_keys, read_trusted

    keys, times = read_bundle_keys([str(public)]), []
    for _ in range(5):
        began = time.process_time()
        read_trusted(content, "bench", keys).bundle.snapshot()
        times.append(time.process_time() - began)
    return statistics.median(times) * 1000


def measure_deliveries(url: str, per_batch: int) -> tuple[float, float]:
    """Return seconds for a delivery of so many decisions, and the bytes that it takes."""
    from compatgate.kit import clock
    from compatgate.kit.database import tables
    from compatgate.kit.database.database import Database
    from compatgate.service.gate.batch_store import DecisionWriter, Delivery
    from compatgate.service.gate.batches import WriterChain
    from compatgate.service.gate.repository import NewDecision

    database = Database.open(url)
    tables.migrate_schema(database)
    writer, chains = DecisionWriter(database), [WriterChain() for _ in range(WRITERS)]
    bodies = {f"vd_{n:032x}": '{"verdict": "pass"}' + " " * 700 for n in range(200)}
    ids, known = list(bodies), dict(bodies)

    def deliver(rounds: int) -> None:
        for start in range(0, rounds * WRITERS, TRANSACTION):
            batches = []
            for index in range(start, start + TRANSACTION):
                chain = chains[index % WRITERS]
                made = [
                    NewDecision(
                        ids[(index + n) % len(ids)], clock.now(), "prod-a100", "pass", True, 1,
                        f"registry.example/team/app@sha256:{index:064x}", "far-gate", "rest", 90,
                    )
                    for n in range(per_batch)
                ]  # fmt: skip
                batch = chain.make(made, known)
                batches.append(Delivery(batch, dict(known)))
                chain.take(batch)
            writer.write(batches)
            known.clear()

    try:
        deliver(1)
        before, began = _size(database), time.perf_counter()
        deliver(8)
        took, grown = time.perf_counter() - began, _size(database) - before
    finally:
        writer.close()
        database.close()
    return took / (8 * WRITERS), grown / (8 * WRITERS)


def _size(database: Any) -> int:
    from sqlalchemy import text

    query = (
        "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
        if database.is_sqlite
        else "SELECT pg_database_size(current_database())"
    )
    with database.reading() as session:
        return int(session.execute(text(query)).scalar())


def measure(args: argparse.Namespace) -> Costs:
    """Measure every cost once."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with central_gate(folder, args.entries) as (server, public):
            zipped = {"Accept-Encoding": "gzip"}
            ask_often(server, 5, zipped)
            download, size, (_, etag, body) = ask_often(server, DOWNLOADS, zipped)
            content = gzip.decompress(body)
            poll, poll_bytes, (status, _, _) = ask_often(
                server, POLLS, {**zipped, "If-None-Match": etag}
            )
            assert status == 304
        verify = measure_verification(content, public)
        small, small_bytes = measure_deliveries(args.database or f"{name}/one.db", 1)
        large, large_bytes = measure_deliveries(args.database or f"{name}/many.db", 21)
    return Costs(
        poll, poll_bytes, download, len(content), size, verify, small * 1e6,
        (large - small) / 20 * 1e6, (large_bytes - small_bytes) / 20,
    )  # fmt: skip


@dataclass
class Hour:
    """What the central gate sees in an hour: totals, and the busiest second."""

    polls: int = 0
    downloads: int = 0
    deliveries: int = 0
    decisions: int = 0
    busiest_polls: int = 0
    busiest_downloads: int = 0
    busiest_deliveries: int = 0


def simulate(args: argparse.Namespace, seed: int = 1) -> Hour:
    """Simulate an hour, gate by gate; a download and a delivery follow a poll."""
    chance = random.Random(seed)
    polls, downloads, deliveries = (array("l", bytes(8 * (HOUR + 1))) for _ in range(3))
    changes = sorted(chance.uniform(0, HOUR) for _ in range(args.changes))
    rate = args.decisions / args.gates / HOUR
    hour = Hour()
    for _ in range(args.gates):
        moment, seen = chance.uniform(0, args.poll), 0
        decided_at = chance.expovariate(rate)
        while moment < HOUR:
            second = int(moment)
            polls[second] += 1
            new = sum(change <= moment for change in changes)
            if new > seen:
                downloads[second] += 1
                seen = new
            count = 0
            while decided_at <= moment:
                count += 1
                decided_at += chance.expovariate(rate)
            if count:
                deliveries[second] += 1
                hour.decisions += count
            moment += args.poll * chance.uniform(0.9, 1.1)
    hour.polls, hour.downloads, hour.deliveries = sum(polls), sum(downloads), sum(deliveries)
    hour.busiest_polls, hour.busiest_downloads = max(polls), max(downloads)
    hour.busiest_deliveries = max(deliveries)
    return hour


def report(args: argparse.Namespace, costs: Costs, hour: Hour) -> list[str]:
    """Return the tables, as lines."""
    cpu_s = (hour.polls * costs.poll_us + hour.downloads * costs.download_us) / 1e6
    sent = hour.polls * costs.poll_bytes + hour.downloads * costs.compressed_bytes
    first = costs.delivery_us - costs.decision_us
    stored_s = (hour.deliveries * first + hour.decisions * costs.decision_us) / 1e6
    day = 24 * hour.decisions * costs.decision_bytes
    burst = hour.busiest_downloads * costs.compressed_bytes
    name = "PostgreSQL" if args.database else "SQLite"
    head = HEAD.format(
        gates=args.gates, poll=args.poll, decisions=args.decisions, cores=os.cpu_count(),
        database=name,
    )  # fmt: skip
    rows = [
        ("poll without news (304), processor time of the gate", f"{costs.poll_us:.0f} us"),
        ("its bytes", f"{costs.poll_bytes}"),
        (f"bundle of {args.entries:,} entries", f"{costs.bundle_bytes / 1e6:.2f} MB"),
        ("compressed, with headers", f"{costs.compressed_bytes / 1e6:.3f} MB"),
        ("its download, processor time of the gate", f"{costs.download_us:.0f} us"),
        ("its verification and snapshot, at the far gate", f"{costs.verify_ms:.0f} ms"),
        (f"delivery of a decision, {TRANSACTION} a transaction", f"{costs.delivery_us:.0f} us"),
        ("each further decision of a delivery", f"{costs.decision_us:.0f} us"),
        ("its bytes in the database", f"{costs.decision_bytes:.0f}"),
    ]
    paper = [
        ("polls a second", f"{hour.polls / HOUR:.0f}, busiest {hour.busiest_polls}"),
        ("processor time of polls and downloads", f"{cpu_s:.0f} s, {cpu_s / HOUR:.1%} of a core"),
        (f"sent, with {args.changes} changes of the matrix", f"{sent / 1e9:.2f} GB"),
        ("busiest second of downloads", f"{hour.busiest_downloads}, {burst / 1e6:.1f} MB"),
        ("deliveries a second", f"{hour.deliveries / HOUR:.0f}, busiest {hour.busiest_deliveries}"),
        ("rows: decisions and batches", f"{hour.decisions:,} and {hour.deliveries:,}"),
        ("time to store them, one after another", f"{stored_s:.0f} s, {stored_s / HOUR:.1%}"),
        ("database, a day of decisions", f"{day / 1e9:.1f} GB"),
    ]
    lines = [*head.splitlines(), *(f"| {what} | {figure} |" for what, figure in rows)]
    lines += ["", "| on paper, an hour | |", "|---|---|"]
    return lines + [f"| {what} | {figure} |" for what, figure in paper]


def read_arguments(argv: list[str]) -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gates", type=int, default=10_000)
    parser.add_argument("--decisions", type=int, default=1_000_000, help="an hour, of all gates")
    parser.add_argument("--poll", type=float, default=60.0, help="seconds between two polls")
    parser.add_argument("--entries", type=int, default=2000)
    parser.add_argument("--changes", type=int, default=4, help="of the matrix, an hour")
    parser.add_argument("--database", help="an empty PostgreSQL database, to store decisions in")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> list[str]:
    """Measure and simulate; return the tables."""
    args = read_arguments(argv or [])
    return report(args, measure(args), simulate(args))


if __name__ == "__main__":
    print("\n".join(main(sys.argv[1:])))
