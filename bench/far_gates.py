"""What many far gates ask of the central gate: polls of the bundle, and decisions delivered.

``python bench/far_gates.py [--gates 10000] [--decisions 1000000] [--poll 60] [--entries 2000]
[--changes 4] [--database URL]``

Costs are measured on this machine with a running gate: a poll without news, the download of a new
bundle, its verification at the far gate, and deliveries over REST by many writers at once. An hour
of so many gates is then simulated on paper: each polls with an offset and a jitter of its own,
decides at random times, and delivers what it decided within a second as a batch of its own chain.
The database is SQLite in a folder of the run's own, or the empty one that ``--database`` names.
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
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from served import HERE, Served

HOUR = 3600
BUNDLE, DELIVERY = "/api/v1/bundle", "/api/v1/decisions/batches"
NAME = "far"
ROUNDS = 8
POLLS = 3000
DOWNLOADS = 60
WRITERS = 200
CONNECTIONS = 16
"""Far gates that deliver at the same time."""
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
    delivery_bytes: float
    decision_bytes: float
    deliveries_per_s: float


@contextmanager
def central_gate(folder: Path, entries: int, database: str) -> Iterator[tuple[Served, Path]]:
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
    command += ["--database", database, "--signing-key", str(private)]
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
    from compatgate.service.gate.far.bundles import read_bundle_keys, read_trusted

    keys, times = read_bundle_keys([str(public)]), []
    for _ in range(5):
        began = time.process_time()
        read_trusted(content, "bench", keys).bundle.snapshot()
        times.append(time.process_time() - began)
    return statistics.median(times) * 1000


def make_deliveries(rounds: int, per_batch: int) -> list[list[bytes]]:
    """Return the requests of each writer, in order; the first one brings the verdicts."""
    import msgspec

    from compatgate.kit import clock
    from compatgate.service.gate.decisions.batch_store import Delivery
    from compatgate.service.gate.decisions.batches import WriterChain
    from compatgate.service.gate.far.gate import make_requests
    from compatgate.service.gate.questions.decider import NewDecision

    ids = [f"vd_{n:032x}" for n in range(200)]
    said = {"verdict": "pass", "allowed": True, "target": "prod-a100", "matrix_revision": 1}
    bodies = {key: msgspec.json.encode({"id": key, **said}).decode() + " " * 700 for key in ids}
    found = []
    for writer in range(WRITERS):
        chain = WriterChain(NAME)
        requests: list[Any] = []
        for turn in range(rounds):
            made = [
                NewDecision(
                    ids[(writer + turn + n) % len(ids)], clock.now(), "prod-a100", "pass", True, 1,
                    f"registry.example/team/app@sha256:{writer:064x}", f"ci@{NAME}", "rest", 90,
                )
                for n in range(per_batch)
            ]  # fmt: skip
            new = bodies if not turn and not writer else {}
            batch = chain.make(made, new)
            requests += make_requests([Delivery(batch, new, late=True)])
            chain.take(batch)
        found.append([msgspec.json.encode(one) for one in requests])
    return found


def measure_deliveries(
    server: Served, token: str, url: str, per_batch: int
) -> tuple[float, float, float]:
    """Return seconds of processor time for a delivery, its bytes, and deliveries a second."""
    from compatgate.kit.database.database import Database

    requests = make_deliveries(1 + ROUNDS, per_batch)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def deliver(bodies: list[bytes]) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        for body in bodies:
            connection.request("POST", DELIVERY, body, headers)
            answer = connection.getresponse()
            content = answer.read()
            assert answer.status == 200, content
        connection.close()

    database = Database.open(url)
    try:
        for one in requests:
            deliver(one[:1])
        before, began, cpu = _size(database), time.perf_counter(), server.cpu_seconds()
        with ThreadPoolExecutor(CONNECTIONS) as pool:
            list(pool.map(lambda one: deliver(one[1:]), requests))
        took, used = time.perf_counter() - began, server.cpu_seconds() - cpu
        grown = _size(database) - before
    finally:
        database.close()
    count = ROUNDS * WRITERS
    return used / count, grown / count, count / took


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
        url = args.database or f"{name}/central.db"
        with central_gate(folder, args.entries, url) as (server, public):
            zipped = {"Accept-Encoding": "gzip"}
            ask_often(server, 5, zipped)
            download, size, (_, etag, body) = ask_often(server, DOWNLOADS, zipped)
            content = gzip.decompress(body)
            poll, poll_bytes, (status, _, _) = ask_often(
                server, POLLS, {**zipped, "If-None-Match": etag}
            )
            assert status == 304
            token = make_token(url)
            small, small_bytes, rate = measure_deliveries(server, token, url, 1)
            large, large_bytes, _ = measure_deliveries(server, token, url, 21)
        verify = measure_verification(content, public)
    further, further_bytes = (large - small) / 20, (large_bytes - small_bytes) / 20
    return Costs(
        poll, poll_bytes, download, len(content), size, verify, small * 1e6, further * 1e6,
        small_bytes, further_bytes, rate,
    )  # fmt: skip


def make_token(url: str) -> str:
    """Return the secret of a far gate's token."""
    from compatgate.kit.database.database import Database
    from compatgate.service.access.tokens import Tokens

    database = Database.open(url)
    try:
        return Tokens(database).create(NAME, ["read", "deliver"], by="bench").secret
    finally:
        database.close()


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
    """Simulate an hour, gate by gate; a download follows a poll, a delivery its decisions."""
    chance = random.Random(seed)
    polls, downloads, deliveries = (array("l", bytes(8 * (HOUR + 1))) for _ in range(3))
    changes = sorted(chance.uniform(0, HOUR) for _ in range(args.changes))
    rate = args.decisions / args.gates / HOUR
    hour = Hour()
    for _ in range(args.gates):
        moment, seen = chance.uniform(0, args.poll), 0
        decided_at, delivered = chance.expovariate(rate), -1
        while decided_at < HOUR:
            hour.decisions += 1
            if int(decided_at) != delivered:
                delivered = int(decided_at)
                deliveries[delivered] += 1
            decided_at += chance.expovariate(rate)
        while moment < HOUR:
            second = int(moment)
            polls[second] += 1
            new = sum(change <= moment for change in changes)
            if new > seen:
                downloads[second] += 1
                seen = new
            moment += args.poll * chance.uniform(0.9, 1.1)
    hour.polls, hour.downloads, hour.deliveries = sum(polls), sum(downloads), sum(deliveries)
    hour.busiest_polls, hour.busiest_downloads = max(polls), max(downloads)
    hour.busiest_deliveries = max(deliveries)
    return hour


def report(args: argparse.Namespace, costs: Costs, hour: Hour) -> list[str]:
    """Return the tables, as lines."""
    cpu_s = (hour.polls * costs.poll_us + hour.downloads * costs.download_us) / 1e6
    sent = hour.polls * costs.poll_bytes + hour.downloads * costs.compressed_bytes
    joined = hour.decisions - hour.deliveries
    stored_s = (hour.deliveries * costs.delivery_us + joined * costs.decision_us) / 1e6
    day = 24 * (hour.deliveries * costs.delivery_bytes + joined * costs.decision_bytes)
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
        ("delivery of a decision, processor time of the gate", f"{costs.delivery_us:.0f} us"),
        ("its bytes in the database", f"{costs.delivery_bytes:.0f}"),
        ("each further decision of a delivery", f"{costs.decision_us:.0f} us"),
        ("its bytes in the database", f"{costs.decision_bytes:.0f}"),
        (f"deliveries a second, over {CONNECTIONS} connections", f"{costs.deliveries_per_s:.0f}"),
    ]
    paper = [
        ("polls a second", f"{hour.polls / HOUR:.0f}, busiest {hour.busiest_polls}"),
        ("processor time of polls and downloads", f"{cpu_s:.0f} s, {cpu_s / HOUR:.1%} of a core"),
        (f"sent, with {args.changes} changes of the matrix", f"{sent / 1e9:.2f} GB"),
        ("busiest second of downloads", f"{hour.busiest_downloads}, {burst / 1e6:.1f} MB"),
        ("deliveries a second", f"{hour.deliveries / HOUR:.0f}, busiest {hour.busiest_deliveries}"),
        ("rows: decisions and batches", f"{hour.decisions:,} and {hour.deliveries:,}"),
        ("processor time of deliveries", f"{stored_s:.0f} s, {stored_s / HOUR:.1%} of a core"),
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
