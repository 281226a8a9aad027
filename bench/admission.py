"""How long the Kubernetes hook takes for a pod, in milliseconds, decisions logged.

``python bench/admission.py [--seconds 4] [--against COMMIT|DIR]``; with ``--against`` the servers
of this tree and of another are asked in turn.

A pod with ten containers is ten questions, each about another image and stack. *Warm*: the same
pod again and again. *New images*: the same stacks in images of digests that nobody asked about
before. One process with 32 threads serves; the load comes from one process on the same machine.
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
from pathlib import Path
from typing import Any

from http_gate import MATRIX
from load import Figures, drive, post
from served import HERE, served, tree_of

HOOK = "/hooks/kubernetes/validate?timeout=10s"
HEAD = """\
`bench/admission.py`: milliseconds for one AdmissionReview over kept-alive connections, decision
log on. Goal: p99 under 20 ms, warm, for a pod with 10 containers (asked by one connection).

| pod | connections | requests/s | p50 ms | p99 ms | failures |
|---|---|---|---|---|---|"""
AGAINST = """\
`bench/admission.py --against`: this tree's server and another's in turn; figures are this one's.

| pod | connections | requests/s | x other | p50 ms | p99 ms | failures |
|---|---|---|---|---|---|---|"""


def review(containers: int, build: int, *, gpus: bool = True) -> bytes:
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
        "compatgate.dev/stack": "cuda=12.4,cudnn=9.1.0,torch=2.4.1+cu124,arch=sm_80",
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


def new_images(start: int = 0) -> Iterator[bytes]:
    """Pods whose images nobody asked about before; ``start`` is another million of them."""
    return (review(10, build) for build in itertools.count(10**6 * start + 1))


def serve() -> None:
    """Run the server under test; prints its port."""
    from compatgate.service.gate.images import ImageSettings
    from compatgate.service.web import server
    from compatgate.service.web.app import create_front
    from compatgate.service.web.call import Settings

    with tempfile.TemporaryDirectory() as folder:
        matrix = Path(folder, "matrix.yaml")
        matrix.write_text(MATRIX)
        prepared = server.prepare(server.StartOptions(str(Path(folder, "bench.db")), [str(matrix)]))
        listener = server.listen("127.0.0.1", 0)
        port = listener.getsockname()[1]
        server.serve(
            server.ServerOptions(listener, 1, "warning"),
            lambda: prepared.open_gate(ImageSettings()),
            lambda gate: create_front(gate, Settings(anonymous=frozenset({"gate"})), 32),
            lambda: print(port, flush=True),
        )


LOADS: dict[str, Callable[[int], Iterator[bytes]]] = {
    "no GPU, 10 containers": lambda _: warm(10, gpus=False),
    "1 container, warm": lambda _: warm(1),
    "10 containers, warm": lambda _: warm(10),
    "10 containers, new images": new_images,
}
_ROUNDS = 4


def row(name: str, connections: int, found: list[Figures], base: list[Figures] | None) -> str:
    """A row of the table; medians of rounds."""
    rate = statistics.median(f.rate for f in found)
    half = statistics.median(f.percentile(0.5) for f in found)
    slow = statistics.median(f.percentile(0.99) for f in found)
    ratio = ""
    if base:
        middle = statistics.median(f.rate / b.rate for f, b in zip(found, base, strict=True))
        ratio = f"| {middle:.2f} "
    failures = sum(f.failures for f in found)
    return f"| {name} | {connections} | {rate:,.0f} {ratio}| {half:.1f} | {slow:.1f} | {failures} |"


def measure(seconds: float, other: Path | None) -> list[str]:
    """Start the servers and measure, in turn."""
    rows = []
    with ExitStack() as stack:
        trees = [HERE, other] if other else [HERE]
        servers = [stack.enter_context(served("admission.py", [], tree)) for tree in trees]
        for (name, load), connections in itertools.product(LOADS.items(), (1, 8)):
            found: list[list[Figures]] = [[] for _ in servers]
            for number, (server, kept) in itertools.product(
                range(_ROUNDS + 1), zip(servers, found, strict=True)
            ):
                requests = load(10 * connections + number)
                each_s = seconds / _ROUNDS if number else 0.5  # the first warms up
                address = ("127.0.0.1", server.port)
                figures = drive(address, requests, connections=connections, seconds=each_s)
                if number:
                    kept.append(figures)
            rows.append(row(name, connections, found[0], found[1] if other else None))
    return rows


def main(arguments: Sequence[str] = ()) -> str:
    """Measure; the text for the page of results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--against", metavar="COMMIT|DIR", help="another tree's server")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.serve:
        serve()
        return ""
    with ExitStack() as stack:
        other = stack.enter_context(tree_of(args.against)) if args.against else None
        return "\n".join([AGAINST if other else HEAD, *measure(args.seconds, other)])


if __name__ == "__main__":
    if text := main(sys.argv[1:]):
        print(text)
