"""How much a server's memory grows when no question is ever asked twice.

``python bench/memory.py [--minutes 20] [--warm-up 10] [--connections 8]``

One process serves. Every question is new: images, versions, packages, requirements, targets that do
not exist, and pods for the Kubernetes hook. After the warm-up the caches are full; the goal is that
the memory of the process (its proportional set size) grows by less than 5 % from then on. The exit
status is 1 if it grows by more.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from admission import review
from http_gate import MATRIX
from load import drive, post
from served import Served, family, served

GOAL = 0.05
_STEP_SECONDS = 15.0
_GATE = "/api/v1/gate"
_KNOWN = ("xformers", "flash-attn", "torchvision", "triton", "vllm", "cupy", "bitsandbytes")


def questions(start: int = 0) -> Iterator[bytes]:
    """Questions of every kind in turn, each one new."""
    for n in itertools.count(start):
        yield review(3, n) if n % 8 == 0 else post(_GATE, json.dumps(_question(n)).encode())


def _question(n: int) -> dict[str, Any]:
    stack: dict[str, Any] = {"cuda": "12.4", "cudnn": "9.1.0", "torch": "2.4.1+cu124"}
    pool = {"driver": f"535.{n % 999}.{n % 97}", "gpu": "A100-SXM4-80GB"}
    match n % 8:
        case 1:
            return {"target": "prod-a100", "stack": stack, "image": f"r.example/team/app:{n}"}
        case 2:
            return {"pool": pool, "stack": {**stack, "torch": f"2.4.1+cu124.{n}"}}
        case 3:  # packages that nobody knows
            return {"pool": pool, "stack": {**stack, **{f"p{i}-{n}": "1.0" for i in range(40)}}}
        case 4:  # versions of known packages, for a Python of their own
            known = dict.fromkeys(_KNOWN, f"0.{n % 50}.{n}")
            return {"pool": pool, "stack": {**stack, **known, "python": f"3.{n % 20}.{n}"}}
        case 5:
            needs = " ".join(f"cuda>={i}.{n},driver>={n}" for i in range(100))
            return {"pool": pool, "stack": {**stack, "require": [needs[:8000]]}}
        case 6:
            return {"target": f"unknown-{n}", "stack": stack}
        case _:  # GPUs and architectures that do not exist, sentences without end
            remarks = [f"remark {n} {'x' * 200}" for _ in range(20)]
            return {"pool": {**pool, "gpu": f"A100-{n}"}, "stack": {**stack, "open": remarks}}


def serve() -> None:
    """Run the server under test; prints its port."""
    from compatgate.service.gate.questions.images import ImageSettings
    from compatgate.web import server, startup
    from compatgate.web.app import create_front
    from compatgate.web.service import Settings

    with tempfile.TemporaryDirectory() as folder:
        matrix = Path(folder, "matrix.yaml")
        matrix.write_text(MATRIX)
        options = startup.StartOptions(str(Path(folder, "bench.db")), [str(matrix)])
        prepared = startup.prepare(options)
        listener = server.listen("127.0.0.1", 0)
        port = listener.getsockname()[1]
        server.serve(
            server.ServerOptions(listener, 1, "error"),
            lambda: prepared.open_rooms(ImageSettings()),
            lambda rooms: create_front(rooms, Settings(anonymous=frozenset({"gate"})), 16),
            lambda: print(port, flush=True),
        )


def memory(server: Served) -> float:
    """Proportional set size of the processes that serve, in MiB."""
    kib = 0
    for pid in family(server.process.pid):
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        kib += next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
    return kib / 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--minutes", type=float, default=20.0, help="after the warm-up")
    parser.add_argument("--warm-up", type=float, default=10.0, help="minutes")
    parser.add_argument("--connections", type=int, default=8)
    args = parser.parse_args()
    if args.serve:
        serve()
        return 0
    with served("memory.py", []) as server:
        asked = questions()
        address = ("127.0.0.1", server.port)
        print(f"at the start: {memory(server):.1f} MiB ({os.cpu_count()} processors)")
        total = 0
        warm = 0.0
        began = time.monotonic()
        highest = 0.0
        while (now := (time.monotonic() - began) / 60) < args.warm_up + args.minutes:
            if not warm and now >= args.warm_up:
                warm = memory(server)
                print(f"warm: {warm:.1f} MiB after {total:,} questions", flush=True)
            figures = drive(address, asked, connections=args.connections, seconds=_STEP_SECONDS)
            total += figures.answered
            used = memory(server)
            highest = max(highest, used) if warm else 0.0
            print(f"{now + _STEP_SECONDS / 60:6.2f} min {total:9,} questions {used:8.1f} MiB",
                  file=sys.stderr, flush=True)  # fmt: skip
    growth = highest / warm - 1
    print(f"highest: {highest:.1f} MiB after {total:,} questions, {growth:+.1%} (goal: under 5 %)")
    return int(growth >= GOAL)


if __name__ == "__main__":
    sys.exit(main())
