"""How long the Kubernetes hook takes for a pod, in milliseconds, decisions logged.

``python bench/admission.py [--seconds 4] [--rounds 4] [--against COMMIT|DIR]``; with ``--against``
the servers of this tree and of another are asked in turn, each first in every second round.

A pod with ten containers is ten questions, each about another image and stack. *Warm*: the same
pod again and again. *New images*: the same stacks in images of digests that nobody asked about
before. *Denied*: the same pod, which may not run; the answer says why. One process with 32 threads
serves; the load comes from one process on the same machine. Where others use it too, only ratios
say much. Each decision waits for the disk; with ``TMPDIR`` in memory only the program counts.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from http_gate import MATRIX
from load import Figures, drive, post
from served import HERE, Served, served, tree_of

_GOOD = "cuda=12.4,cudnn=9.1.0,torch=2.4.1+cu124,arch=sm_80"
_BAD = "cuda=12.1,arch=sm_90"
HOOK = "/hooks/kubernetes/validate?timeout=10s"
HEAD = """\
`bench/admission.py`: milliseconds for one AdmissionReview over kept-alive connections, decision
log on. Goal: p99 under 20 ms, warm, for a pod with 10 containers (asked by one connection).

| pod | connections | requests/s | p50 ms | p99 ms | failures |
|---|---|---|---|---|---|"""
AGAINST = """\
`bench/admission.py --against {other}`: this tree's server and that one's in turn; figures are this
one's. *x other* and *p99 x* are medians of the rounds' ratios; *p99 x* below 1 is quicker than the
other. *CPU* is the processor time that the server takes for a request, in microseconds; *less*, how
many times less than the other takes.

| pod | connections | requests/s | x other | CPU | less | p50 ms | p99 ms | p99 x | failures |
|---|---|---|---|---|---|---|---|---|---|"""


def review(containers: int, build: int, *, gpus: bool = True, stack: str = _GOOD) -> bytes:
    """A pod; ``build`` makes its images others."""
    resources = {"limits": {"nvidia.com/gpu": "1"}} if gpus else {"limits": {"cpu": "1"}}
    made = [
        {
            "name": f"c{n}",
            "image": f"registry.example/team/app{n}@sha256:{build * 100 + n:064x}",
            "env": [{"name": f"VARIABLE_{i}", "value": "x" * 40} for i in range(20)],
            "resources": resources,
        }
        for n in range(containers)
    ]
    annotations = {
        "compatgate.dev/target": "prod-a100",
        "compatgate.dev/stack": stack,
    }
    request: dict[str, Any] = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "operation": "CREATE",
        "namespace": "ml-train",
        "object": {"metadata": {"annotations": annotations}, "spec": {"containers": made}},
    }
    whole = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return post(HOOK, json.dumps(whole, separators=(",", ":")).encode())  # as the API server writes


def warm(containers: int, *, gpus: bool = True) -> Iterator[bytes]:
    """The same pod, over and over."""
    return itertools.repeat(review(containers, 0, gpus=gpus))


def denied() -> Iterator[bytes]:
    """A pod that may not run, over and over."""
    return itertools.repeat(review(1, 0, stack=_BAD))


def new_images(start: int = 0) -> Iterator[bytes]:
    """Pods whose images nobody asked about before; ``start`` is another million of them."""
    return (review(10, build) for build in itertools.count(10**6 * start + 1))


def serve() -> None:
    """Run the server under test; prints its port."""
    from compatgate.service.gate.questions.images import ImageSettings
    from compatgate.web import server, startup
    from compatgate.web.app import create_front
    from compatgate.web.service import Settings

    with tempfile.TemporaryDirectory() as folder:
        matrix = Path(folder, "matrix.yaml")
        matrix.write_text(MATRIX)
        prepared = startup.prepare(
            startup.StartOptions(str(Path(folder, "bench.db")), [str(matrix)])
        )
        listener = server.listen("127.0.0.1", 0)
        port = listener.getsockname()[1]
        server.serve(
            server.ServerOptions(listener, 1, "warning"),
            lambda: prepared.open_rooms(ImageSettings()),
            lambda rooms: create_front(rooms, Settings(anonymous=frozenset({"gate"})), 32),
            lambda: print(port, flush=True),
        )


LOADS: dict[str, Callable[[int], Iterator[bytes]]] = {
    "no GPU, 10 containers": lambda _: warm(10, gpus=False),
    "1 container, warm": lambda _: warm(1),
    "1 container, denied": lambda _: denied(),
    "10 containers, warm": lambda _: warm(10),
    "10 containers, new images": new_images,
}


@dataclass
class Round:
    """What one round showed of one server."""

    figures: Figures
    cpu_us: float
    """Processor time of the server for a request, in microseconds."""


def row(name: str, connections: int, found: list[Round], base: list[Round] | None) -> str:
    """A row of the table; medians of rounds."""
    figures = [one.figures for one in found]
    rate = statistics.median(f.rate for f in figures)
    half = statistics.median(f.percentile(0.5) for f in figures)
    slow = statistics.median(f.percentile(0.99) for f in figures)
    failures = sum(f.failures for f in figures)
    if base is None:
        return f"| {name} | {connections} | {rate:,.0f} | {half:.1f} | {slow:.1f} | {failures} |"
    pairs = list(zip(found, base, strict=True))
    faster = statistics.median(one.figures.rate / other.figures.rate for one, other in pairs)
    cpu_us = statistics.median(one.cpu_us for one in found)
    saved = statistics.median(other.cpu_us / one.cpu_us for one, other in pairs)
    tail = statistics.median(
        one.figures.percentile(0.99) / other.figures.percentile(0.99) for one, other in pairs
    )
    return (
        f"| {name} | {connections} | {rate:,.0f} | {faster:.2f} | {cpu_us:.0f} | {saved:.2f} "
        f"| {half:.1f} | {slow:.1f} | {tail:.2f} | {failures} |"
    )


def measure_round(
    server: Served, requests: Iterator[bytes], connections: int, seconds: float
) -> Round:
    """Ask one server for some seconds."""
    before = server.cpu_seconds()
    address = ("127.0.0.1", server.port)
    figures = drive(address, requests, connections=connections, seconds=seconds)
    took = server.cpu_seconds() - before
    return Round(figures, 1e6 * took / figures.answered)


def measure(seconds: float, rounds: int, other: Path | None) -> list[str]:
    """Start the servers and measure, in turn."""
    rows = []
    with ExitStack() as stack:
        trees = [HERE, other] if other else [HERE]
        servers = [stack.enter_context(served("admission.py", [], tree)) for tree in trees]
        for (name, load), connections in itertools.product(LOADS.items(), (1, 8)):
            found: list[list[Round]] = [[] for _ in servers]
            for number in range(rounds + 1):
                each_s = seconds / rounds if number else 0.5  # the first warms up
                turns = list(zip(servers, found, strict=True))
                for server, kept in turns if number % 2 else reversed(turns):
                    requests = load((rounds + 1) * connections + number)
                    one = measure_round(server, requests, connections, each_s)
                    if number:
                        kept.append(one)
            rows.append(row(name, connections, found[0], found[1] if other else None))
    return rows


def main(arguments: Sequence[str] = ()) -> str:
    """Measure; the text for the page of results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0, help="for each row and tree")
    parser.add_argument("--rounds", type=int, default=4, help="that share these seconds")
    parser.add_argument("--against", metavar="COMMIT|DIR", help="another tree's server")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.serve:
        serve()
        return ""
    with ExitStack() as stack:
        other = stack.enter_context(tree_of(args.against)) if args.against else None
        head = AGAINST.format(other=args.against) if other else HEAD
        return "\n".join([head, *measure(args.seconds, args.rounds, other)])


if __name__ == "__main__":
    if text := main(sys.argv[1:]):
        print(text)
