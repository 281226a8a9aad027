"""How long the Kubernetes hook takes for a pod, in milliseconds, decisions logged.

``python bench/admission.py [--seconds 4]``

A pod with ten containers is ten questions, each about another image and stack. *Warm*: the same
pod again and again. *New images*: the same stacks in images of digests that nobody asked about
before. One process with 32 threads serves; the load comes from one process on the same machine.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from http_gate import MATRIX
from load import Figures, drive, post

HOOK = "/hooks/kubernetes/validate?timeout=10s"
HEAD = """\
`bench/admission.py`: milliseconds for one AdmissionReview over kept-alive connections, decision
log on. Goal: p99 under 20 ms, warm, for a pod with 10 containers (asked by one connection).

| pod | connections | requests/s | p50 ms | p99 ms | failures |
|---|---|---|---|---|---|"""


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
    from compatgate.gate.images import ImageSettings
    from compatgate.web import server, start
    from compatgate.web.app import create_app
    from compatgate.web.settings import Settings

    with tempfile.TemporaryDirectory() as folder:
        matrix = Path(folder, "matrix.yaml")
        matrix.write_text(MATRIX)
        prepared = start.prepare(str(Path(folder, "bench.db")), [str(matrix)], None)
        listener = start.listen("127.0.0.1", 0)
        port = listener.getsockname()[1]
        server.serve(
            server.ServerOptions(listener, 1, 32, "warning"),
            lambda: prepared.open_gate(ImageSettings()),
            lambda gate: create_app(gate, Settings(anonymous=frozenset({"gate"}))),
            lambda: print(port, flush=True),
        )


def row(name: str, connections: int, found: Figures) -> str:
    """A row of the table."""
    half, slow = found.percentile(0.5), found.percentile(0.99)
    return (
        f"| {name} | {connections} | {found.rate:,.0f} | {half:.1f} | {slow:.1f} "
        f"| {found.failures} |"
    )


def measure(seconds: float) -> list[str]:
    """Start a server and measure."""
    loads: dict[str, Callable[[int], Iterator[bytes]]] = {
        "no GPU, 10 containers": lambda _: warm(10, gpus=False),
        "1 container, warm": lambda _: warm(1),
        "10 containers, warm": lambda _: warm(10),
        "10 containers, new images": new_images,
    }
    rows = []
    with subprocess.Popen(
        [sys.executable, __file__, "--serve"], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            address = ("127.0.0.1", int(process.stdout.readline()))
            for name, load in loads.items():
                for connections in (1, 8):
                    drive(address, load(connections), connections=connections, seconds=0.5)
                    requests = load(100 + connections)
                    found = drive(address, requests, connections=connections, seconds=seconds)
                    rows.append(row(name, connections, found))
        finally:
            process.terminate()
    return rows


def main(arguments: Sequence[str] = ()) -> str:
    """Measure; the text for the page of results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.serve:
        serve()
        return ""
    return "\n".join([HEAD, *measure(args.seconds)])


if __name__ == "__main__":
    if text := main(sys.argv[1:]):
        print(text)
