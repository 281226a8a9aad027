"""How long admission and health wait while clients ask what is expensive.

``python bench/heavy.py [--entries 200] [--pools 10] [--clients 64] [--seconds 15]``

A gate with one worker serves a target with many pools and entries. First nobody asks anything
expensive; then so many clients ask one kind of question again and again, each with a change of its
own. Beside them one process sends admission reviews and another asks for ``/healthz``. Goals with
200 entries and 10 pools: admission under 1 s and health under 0.5 s (p99), all processes of the
gate together under 1 GiB.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from socket import create_connection
from typing import Any

from admission import HOOK, review
from served import family

GPUS = (
    "A100-SXM4-80GB",
    "H100-SXM5-80GB",
    "L4",
    "A100-SXM4-40GB",
    "A10",
    "T4",
    "L40S",
    "V100-SXM2-32GB",
)
TORCHES = ("2.2.2", "2.3.1", "2.4.1", "2.5.1", "2.6.0", "2.7.1")
HEAD = """\
`bench/heavy.py`: seconds (p99) of admission and health while {clients} clients ask one kind of
expensive question, {entries} entries x {pools} pools, one worker. Goals: 1 s, 0.5 s, 1,024 MiB.

| clients ask | answers | admission p99 s | health p99 s | most MiB |
|---|---|---|---|---|"""
KINDS: dict[str, tuple[str, Any]] = {
    "nothing": ("", None),
    "what-if": ("/api/v1/what-if", lambda n: {"target": "big", "set": {"driver": f"580.{n}"}}),
    "plan": ("/api/v1/targets/big/plan", lambda n: {"set": {"driver": f"580.{n}"}}),
    "solve": ("/api/v1/solve", lambda n: {"target": "big", "want": {"torch": f">=2.{n % 7}"}}),
    "backtest": (
        "/api/v1/backtests",
        lambda n: {"delete": [{"kind": "Entry", "name": f"e{n % 100}"}]},
    ),
    "bursts": ("/healthz", None),
}
BURST = 60_000
"""Requests that a client sends at once, without waiting for answers."""


def write_matrix(path: Path, entries: int, pools: int) -> None:
    """Write a matrix with one target of many pools, and entries for it."""
    documents: list[dict[str, Any]] = [
        {
            "kind": "Target",
            "metadata": {"name": "big"},
            "spec": {
                "pools": [
                    {"name": f"p{n}", "gpu": GPUS[n % len(GPUS)], "driver": f"535.{100 + n}.05"}
                    for n in range(pools)
                ],
                "match": {"namespaces": ["default"]},
            },
        }
    ]
    for number in range(entries):
        torch = TORCHES[number % len(TORCHES)]
        components = {"torch": f"~={torch}", "cudnn": f">=8.{number % 9}", "cuda": ">=11.8,<13"}
        spec = {
            "targets": ["big"],
            "components": components,
            "status": "blessed",
            "reason": "bench",
        }
        documents.append({"kind": "Entry", "metadata": {"name": f"e{number}"}, "spec": spec})
    head = {"apiVersion": "compatgate.dev/v1"}
    path.write_text("\n---\n".join(json.dumps({**head, **one}) for one in documents))


class Client(threading.Thread):
    """Sends the next request once the last one is answered, until it is stopped."""

    def __init__(self, port: int, method: str, path: str, body: Any, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._port, self._method, self._path = port, method, path
        self._body, self._stop_event = body, stop
        self.seconds: list[float] = []
        self.statuses: Counter[int] = Counter()

    def run(self) -> None:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=120)
        headers = {"Content-Type": "application/json"}
        while not self._stop_event.is_set():
            began = time.perf_counter()
            try:
                connection.request(self._method, self._path, self._body(), headers)
                answer = connection.getresponse()
                answer.read()
                self.statuses[answer.status] += 1
            except (OSError, HTTPException):
                self.statuses[0] += 1
                connection.close()
            self.seconds.append(time.perf_counter() - began)
            time.sleep(0.02)


class Burst(Client):
    """Sends thousands of requests at once on one connection after another."""

    def run(self) -> None:
        sent = f"GET {self._path} HTTP/1.1\r\nHost: x\r\n\r\n".encode() * BURST
        while not self._stop_event.is_set():
            with suppress(OSError), create_connection(("127.0.0.1", self._port), 10) as connection:
                connection.sendall(sent)
            self.statuses[0] += 1


def measure(port: int, pid: int, kind: str, clients: int, seconds: float) -> str:
    """Return a row of the table."""
    stop, numbers = threading.Event(), iter(range(10**9))
    path, make = KINDS[kind]
    asking = [
        Client(port, "POST", path, lambda: json.dumps(make(next(numbers) % 150 + 10)), stop)
        for _ in range(clients if make else 0)
    ]
    if kind == "bursts":
        asking = [Burst(port, "GET", path, None, stop) for _ in range(clients)]
    for client in asking:
        client.start()
    most = 0
    with ProcessPoolExecutor(2, get_context("spawn")) as others:  # 64 threads share a lock here
        waits = [others.submit(probe, port, what, seconds) for what in ("admission", "health")]
        while not all(one.done() for one in waits):
            most = max(most, sum(map(resident, family(pid))))
            time.sleep(0.2)
    stop.set()
    admission, health = (p99(one.result()) for one in waits)
    answers = sum((client.statuses for client in asking), Counter())
    shown = ", ".join(f"{status}: {count}" for status, count in sorted(answers.items())) or "-"
    return f"| {kind} | {shown} | {admission:.3f} | {health:.3f} | {most / 2**20:.0f} |"


def probe(port: int, what: str, seconds: float) -> list[float]:
    """Ask for admission or health for some time; return the seconds until each answer."""
    stop = threading.Event()
    if what == "admission":
        reviews = (review(1, number) for number in count())
        client = Client(port, "POST", HOOK, lambda: next(reviews), stop)
    else:
        client = Client(port, "GET", "/healthz", lambda: None, stop)
    threading.Timer(seconds, stop.set).start()
    client.run()
    return client.seconds


def p99(values: list[float]) -> float:
    """Return the 99th percentile."""
    return sorted(values)[int(len(values) * 0.99) - 1] if values else float("nan")


def resident(pid: int) -> int:
    """Return the memory of a process in bytes; what several share counts in part."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=200)
    parser.add_argument("--pools", type=int, default=10)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=15)
    args = parser.parse_args()
    run(args.entries, args.pools, args.clients, args.seconds)
    return 0


def run(entries: int, pools: int, clients: int, seconds: float) -> None:
    """Serve a gate, ask each kind of question, and print the table."""
    print(HEAD.format(clients=clients, entries=entries, pools=pools), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        write_matrix(Path(folder, "matrix.yaml"), entries, pools)
        command = [sys.executable, "-m", "compatgate", "serve", "--port", "0", "--workers", "1"]
        command += ["--database", f"{folder}/gate.db", "--state", folder]
        command += ["--matrix", f"{folder}/matrix.yaml", "--unmatched", "warn"]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            assert process.stdout is not None
            port = int(process.stdout.readline().rpartition(":")[2])
            try:
                for kind in KINDS:
                    print(measure(port, process.pid, kind, clients, seconds), flush=True)
            finally:
                process.terminate()


if __name__ == "__main__":
    sys.exit(main())
