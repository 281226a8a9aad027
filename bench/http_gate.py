"""How many gate decisions a server answers, as a share of empty JSON answers of the same server.

``python bench/http_gate.py [--workers 1,2] [--threads 32] [--rounds 9] [--seconds 1]``, and on
PostgreSQL ``--database URL [--decision-commit sync|async]``.

The empty endpoint is a bare Flask application (``return jsonify({})``) beside the product's, behind
the same gunicorn, workers and threads. Rounds alternate, ratios are taken round by round, and what
is shown are medians. The decision log is on, in an SQLite file of the run's own, or in the database
that ``--database`` names: one without decisions, for this bench alone.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from load import Figures, drive, post

if TYPE_CHECKING:
    from compatgate.store.decision_writer import Commit

CONNECTIONS = 16
STACKS = 20
MOST = 60_000
"""Questions that a round may send; the next begins with others."""
EMPTY, GATE = "/empty", "/api/v1/gate"
HEAD = f"""\
`bench/http_gate.py`: requests a second over {CONNECTIONS} kept-alive connections, decision log on,
against an empty JSON answer (bare Flask) of the same server, workers and threads. Goals: 0.8 x of
empty (floor 0.5), p99 under 10 ms. The load comes from one process on the same machine and takes a
core of it.

- *one question*, *1,000 questions*: asked over and over, found in memory, each decision logged.
- *new images*: never asked before; {STACKS} stacks, each time in an image of another digest, as
  rebuilds of the same services would be. The stack was assessed before; the verdict is new and is
  stored.
- *new stacks*: never asked before, and no two stacks alike: the hardest case. Each is evaluated
  with its fixes; the verdict is new, and stored.

| questions | workers x threads | requests/s | x empty | p99 ms | failures |
|---|---|---|---|---|---|"""
MATRIX = """\
apiVersion: compatgate.dev/v1
kind: Target
metadata: {name: prod-a100}
spec:
  pools: [{name: a100-80, gpu: A100-SXM4-80GB, driver: 535.183.01}]
  policy: {requireEntry: true}
---
apiVersion: compatgate.dev/v1
kind: Entry
metadata: {name: torch24-cu124}
spec:
  targets: [prod-a100]
  components: {driver: ">=535.104.05,<536", cuda: "12.4.*", torch: "~=2.4.0"}
  status: blessed
"""


def question(number: int, *, build: int = 0, python: str = "3.11") -> bytes:
    """A question; the number makes its image another one, build and Python its stack."""
    stack = {
        "cuda": "12.4",
        "cudnn": f"9.1.0.{70 + build}",
        "torch": "2.4.1+cu124",
        "python": python,
        "arch": ["sm_80"],
    }
    image = f"registry.example/team/app@sha256:{number:064x}"
    return json.dumps({"target": "prod-a100", "stack": stack, "image": image}).encode()


def empty() -> Iterator[bytes]:
    """Requests to the empty endpoint."""
    return itertools.repeat(f"GET {EMPTY} HTTP/1.1\r\nHost: bench\r\n\r\n".encode())


def repeated(count: int) -> Iterator[bytes]:
    """So many questions, over and over."""
    return itertools.cycle([post(GATE, question(number)) for number in range(count)])


def new_images(start: int) -> Iterator[bytes]:
    """Questions that nobody asked before, about few stacks."""
    return (post(GATE, question(n, build=n % STACKS)) for n in itertools.count(start))


def new_stacks(start: int) -> Iterator[bytes]:
    """Questions that nobody asked before, each about another stack."""
    for number in itertools.count(start):
        patch, build = divmod(number, 9000)
        yield post(GATE, question(number, build=build, python=f"3.11.{patch % 100}"))


LOADS: dict[str, Callable[[int], Iterator[bytes]]] = {
    "empty": lambda _: empty(),
    "one question": lambda _: repeated(1),
    "1,000 questions": lambda _: repeated(1000),
    "new images": lambda number: new_images(10**7 + MOST * number),
    "new stacks": lambda number: new_stacks(MOST * number),
}
"""What is sent, by name; given the number of the round."""


def serve(workers: int, threads: int, database: str | None, commit: Commit) -> None:
    """Run the server under test; prints its port."""
    from flask import Flask, Response, jsonify

    from compatgate.gate.images import ImageSettings
    from compatgate.gate.service import Gate
    from compatgate.store import schema
    from compatgate.store.database import Database
    from compatgate.web import server, start
    from compatgate.web.app import create_app
    from compatgate.web.settings import Settings

    bare = Flask("bare")

    @bare.get(EMPTY)
    def nothing() -> Response:
        return jsonify({})

    def make_app(gate: Gate) -> Any:
        product = create_app(gate, Settings(anonymous=frozenset({"gate"})))

        class Both:
            extensions = product.extensions

            def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
                app = bare if environ["PATH_INFO"] == EMPTY else product
                return app(environ, start_response)

        return Both()

    with tempfile.TemporaryDirectory() as folder:
        matrix = Path(folder, "matrix.yaml")
        matrix.write_text(MATRIX)
        if database:
            opened = Database.open(database)
            schema.migrate(opened)
            opened.close()
        used = database or str(Path(folder, "bench.db"))
        prepared = start.prepare(used, [str(matrix)], None)
        listener = start.listen("127.0.0.1", 0)
        port = listener.getsockname()[1]
        options = server.ServerOptions(listener, workers, threads, "warning")
        server.serve(
            options,
            lambda: prepared.open_gate(ImageSettings(), commit),
            make_app,
            lambda: print(port, flush=True),
        )


def measure(port: int, what: str, number: int, seconds: float) -> Figures:
    """One round; called in a process of its own."""
    requests = LOADS[what](number)
    return drive(("127.0.0.1", port), requests, connections=CONNECTIONS, seconds=seconds)


def rounds(port: int, what: list[str], count: int, seconds: float) -> dict[str, list[Figures]]:
    """Alternating rounds; the first of each is for warming up."""
    found: dict[str, list[Figures]] = {name: [] for name in what}
    with get_context("spawn").Pool(1) as pool:
        for number in range(-1, count):
            for name in what:
                figures = pool.apply(measure, (port, name, number + 1, seconds))
                if number >= 0:
                    found[name].append(figures)
    return found


def row(name: str, found: list[Figures], base: list[Figures], server: str) -> str:
    """A row of the table."""
    rate = statistics.median(f.rate for f in found)
    ratio = statistics.median(f.rate / b.rate for f, b in zip(found, base, strict=True))
    slow = statistics.median(f.percentile(0.99) for f in found)
    failures = sum(f.failures for f in found)
    return f"| {name} | {server} | {rate:,.0f} | {ratio:.2f} | {slow:.1f} | {failures} |"


def compare(
    workers: int, threads: int, count: int, seconds: float, more: Sequence[str] = ()
) -> list[str]:
    """Rows for one shape of a server; ``more`` are its options for the database."""
    options = ["--serve", f"--workers={workers}", f"--threads={threads}", *more]
    with subprocess.Popen(
        [sys.executable, __file__, *options], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            found = rounds(port, [*LOADS], count, seconds)
        finally:
            process.terminate()
    shape = f"{workers} x {threads}"
    return [row(name, found[name], found["empty"], shape) for name in LOADS]


def main(arguments: Sequence[str] = ()) -> str:
    """Measure; the text for the page of results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", default="1,2")
    parser.add_argument("--threads", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--database", metavar="URL", help="of PostgreSQL (an SQLite file)")
    parser.add_argument("--decision-commit", choices=("sync", "async"), default="sync")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.serve:
        serve(int(args.workers), args.threads, args.database, args.decision_commit)
        return ""
    more = [f"--decision-commit={args.decision_commit}"]
    more += [f"--database={args.database}"] if args.database else []
    shapes = [int(number) for number in args.workers.split(",")]
    rows = [
        line
        for workers in shapes
        for line in compare(workers, args.threads, args.rounds, args.seconds, more)
    ]
    return "\n".join([HEAD, *rows])


if __name__ == "__main__":
    if text := main(sys.argv[1:]):
        print(text)
