"""How many gate decisions a server answers, as a share of empty JSON answers of the same server.

``python bench/http_gate.py [--workers 1,2] [--threads 32] [--rounds 9] [--seconds 1]
[--connections 16]``, and on PostgreSQL ``--database URL [--decision-commit sync|async]``.
``--against COMMIT|DIR`` compares with the server of another tree instead. ``--access-log`` is the
option of ``serve``; the lines go to a file. ``--generator wrk`` sends the load by wrk (Debian's),
which leaves more of the machine to the server.

The empty endpoint is a bare Flask application (``return jsonify({})``) beside the product's, behind
the same server, workers and threads. Rounds alternate, ratios are taken round by round, and what is
shown are medians. The decision log is on, in an SQLite file of the run's own, or in the database
that ``--database`` names: one without decisions, for this bench alone.

Where other programs use the machine, the load generator and the server wait for a core in turn, and
requests a second say little. The processor time that a request takes of the server says more.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from load import Figures, drive, drive_with_wrk, post
from served import Served, served, tree_of

from compatgate.service.app import Rooms

if TYPE_CHECKING:
    from compatgate.service.gate.decisions.batch_store import CommitMode
    from compatgate.web.service import AccessLevel

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

*CPU* is the server's processor time for a request, in microseconds; *less*, how many times less
than an empty answer takes.

| questions | workers x threads | requests/s | x empty | CPU | less | p99 ms | failures |
|---|---|---|---|---|---|---|---|"""
AGAINST = """\
`bench/http_gate.py --against {other}`: this tree's server and that one's in turn, over
{connections} kept-alive connections. *CPU* is the server's processor time for a request, in
microseconds; *less*, how many times less than the other takes.

| questions | workers x threads | requests/s | x other | CPU | less | p99 ms | failures |
|---|---|---|---|---|---|---|---|"""
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
PREPARED = {"empty": 1, "one question": 1, "1,000 questions": 1000}
"""Requests of a load that repeats them."""


def make_app(rooms: Rooms, threads: int, lines: AccessLevel) -> Any:
    """Return the product's application, with an empty endpoint of Flask alone beside it."""
    from flask import Flask, Response, jsonify

    from compatgate.kit.http.wsgi import WsgiLane, receive_body
    from compatgate.web.app import create_front
    from compatgate.web.service import Settings

    bare = Flask("bare")

    @bare.get(EMPTY)
    def nothing() -> Response:
        return jsonify({})

    settings = Settings(anonymous=frozenset({"gate"}), access_log=lines)
    product = create_front(rooms, settings, threads)
    lane = WsgiLane(bare, "bare", threads)

    async def both(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan" or scope["path"] != EMPTY:
            await product(scope, receive, send)
        elif body := await receive_body(receive, 0):
            await lane.answer(scope, body, receive, send)

    return both


def serve(
    workers: int,
    threads: int,
    database: str | None,
    commit: CommitMode,
    lines: AccessLevel = "errors",
) -> None:
    """Run the server under test; prints its port."""
    from compatgate.kit import logs
    from compatgate.kit.database import tables
    from compatgate.kit.database.database import Database
    from compatgate.service.gate.questions.images import ImageSettings
    from compatgate.web import server, startup

    with tempfile.TemporaryDirectory() as folder:
        if lines == "all":
            os.dup2(os.open(Path(folder, "log"), os.O_CREAT | os.O_WRONLY), 2)
        logs.configure("json", "warning")
        matrix = Path(folder, "matrix.yaml")
        matrix.write_text(MATRIX)
        if database:
            opened = Database.open(database)
            tables.migrate_schema(opened)
            opened.close()
        used = database or str(Path(folder, "bench.db"))
        prepared = startup.prepare(
            startup.StartOptions(used, [str(matrix)], state=str(Path(folder, "state")))
        )
        listener = server.listen("127.0.0.1", 0)
        port = listener.getsockname()[1]
        options = server.ServerOptions(listener, workers, "warning")
        server.serve(
            options,
            lambda: prepared.open_rooms(ImageSettings(), commit=commit),
            lambda rooms: make_app(rooms, threads, lines),
            lambda: print(port, flush=True),
        )


def measure(
    port: int, what: str, number: int, seconds: float, connections: int, generator: str
) -> Figures:
    """One round; called in a process of its own."""
    address, requests = ("127.0.0.1", port), LOADS[what](number)
    if generator == "wrk":
        most, whole = PREPARED.get(what, MOST), math.ceil(seconds)
        return drive_with_wrk(address, requests, connections=connections, seconds=whole, most=most)
    return drive(address, requests, connections=connections, seconds=seconds)


@dataclass
class Round:
    """What one round showed of one server."""

    figures: Figures
    cpu_us: float
    """Processor time of the server for a request, in microseconds."""


Rounds = dict[str, list[Round]]
"""By what was asked."""


def rounds(
    servers: Sequence[Served], what: Sequence[str], args: argparse.Namespace
) -> list[Rounds]:
    """Alternating rounds, those of each server in turn; the first of each is for warming up."""
    found: list[Rounds] = [{name: [] for name in what} for _ in servers]
    with get_context("spawn").Pool(1) as pool:
        for number, name in itertools.product(range(-1, args.rounds), what):
            for server, kept in zip(servers, found, strict=True):
                before = server.cpu_seconds()
                asked = (
                    server.port,
                    name,
                    number + 1,
                    args.seconds,
                    args.connections,
                    args.generator,
                )
                figures = pool.apply(measure, asked)
                took = server.cpu_seconds() - before
                if number >= 0:
                    kept[name].append(Round(figures, 1e6 * took / figures.answered))
    return found


def row(name: str, shape: str, found: list[Round], base: list[Round]) -> str:
    """A row of either table."""
    rate = statistics.median(one.figures.rate for one in found)
    pairs = list(zip(found, base, strict=True))
    ratio = statistics.median(one.figures.rate / other.figures.rate for one, other in pairs)
    saved = statistics.median(other.cpu_us / one.cpu_us for one, other in pairs)
    slow = statistics.median(one.figures.percentile(0.99) for one in found)
    cpu_us = statistics.median(one.cpu_us for one in found)
    failures = sum(one.figures.failures for one in found)
    return (
        f"| {name} | {shape} | {rate:,.0f} | {ratio:.2f} | {cpu_us:.0f} | {saved:.2f} "
        f"| {slow:.1f} | {failures} |"
    )


def compare(workers: int, args: argparse.Namespace, other: Path | None) -> list[str]:
    """Rows for one shape of a server."""
    options = [f"--workers={workers}", f"--threads={args.threads}"]
    options += [f"--decision-commit={args.decision_commit}"]
    ours, theirs = ([f"--database={url}"] if url else [] for url in args.databases)
    own = [*options, *ours, f"--access-log={args.access_log}"]
    shape = f"{workers} x {args.threads}"
    with ExitStack() as stack:
        servers = [stack.enter_context(served("http_gate.py", own))]
        if other:
            servers.append(stack.enter_context(served("http_gate.py", [*options, *theirs], other)))
        found = rounds(servers, [*LOADS], args)
    if other is None:
        return [row(name, shape, found[0][name], found[0]["empty"]) for name in LOADS]
    return [row(name, shape, found[0][name], found[1][name]) for name in LOADS]


def main(arguments: Sequence[str] = ()) -> str:
    """Measure; the text for the page of results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", default="1,2")
    parser.add_argument("--threads", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--connections", type=int, default=CONNECTIONS)
    parser.add_argument("--against", metavar="COMMIT|DIR", help="another tree's server (empty)")
    parser.add_argument(
        "--database",
        metavar="URL",
        action="append",
        default=[],
        help="of PostgreSQL (an SQLite file); with --against, a second one for the other tree",
    )
    parser.add_argument("--decision-commit", choices=("sync", "async"), default="sync")
    parser.add_argument("--generator", choices=("python", "wrk"), default="python")
    parser.add_argument("--access-log", choices=("off", "errors", "all"), default="errors")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.serve:
        workers, threads = int(args.workers), args.threads
        database = args.database[0] if args.database else None
        serve(workers, threads, database, args.decision_commit, args.access_log)
        return ""
    if args.database and len(args.database) != 1 + bool(args.against):
        parser.error("each server needs a --database of its own")
    args.databases = [*args.database, None, None][:2]
    head = AGAINST.format(other=args.against, connections=args.connections)
    with ExitStack() as stack:
        other = stack.enter_context(tree_of(args.against)) if args.against else None
        shapes = [int(number) for number in args.workers.split(",")]
        rows = [line for workers in shapes for line in compare(workers, args, other)]
    return "\n".join([head if other else HEAD, *rows])


if __name__ == "__main__":
    if text := main(sys.argv[1:]):
        print(text)
