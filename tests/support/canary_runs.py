"""Suites, staging hosts and evidence for tests of runs; no program and no container behind them."""

from __future__ import annotations

from typing import Any

from compatgate.canary.engine import Lease
from compatgate.canary.hosts import Host
from compatgate.canary.workload import ImageSpec, Suite, Workload
from compatgate.canary.workloads import Library
from compatgate.core.matrix import Evidence
from compatgate.core.versions import parse_version
from compatgate.kit import clock

GPU = "A100-SXM4-80GB"
DRIVER = "535.183.01"
STACK = {"cuda": "12.4", "cudnn": "9.1.0", "torch": "2.4.1+cu124"}
OWN = ImageSpec(reference="registry.example/canary:1")
MEASURED = {"cuda": "12.4.1", "cudnn": "9.1.0.70", "torch": "2.4.1+cu124"}


def suites() -> Library:
    """Suites that need no GPU, one, and two."""
    library = Library()
    library.workloads = {
        name: Workload(name, f"tests {name}", ("true",), OWN, gpus=gpus)
        for name, gpus in (("hello-cpu", 0), ("gemm", 1), ("nccl", 2))
    }
    library.suites = {
        "hello": Suite("hello", "needs no GPU", ("hello-cpu",)),
        "smoke": Suite("smoke", "one GPU", ("hello-cpu", "gemm")),
        "dl-core": Suite("dl-core", "one GPU", ("gemm",)),
        "soak": Suite("soak", "one GPU, for long", ("gemm",)),
        "pair": Suite("pair", "two GPUs", ("nccl",)),
        "spread": Suite("spread", "two nodes with a GPU each", ("gemm", "spread")),
    }
    spread = Workload("spread", "tests spread", ("true",), OWN, gpus=1, nodes=2)
    library.workloads["spread"] = spread
    return library


def host(name: str = "a100-1", **fields: Any) -> Host:
    """A staging host of four A100."""
    return Host(**({"name": name, "gpu": GPU, "driver": DRIVER, "slots": 4} | fields))


def evidence(lease: Lease, outcome: Any = "passed", **fields: Any) -> Evidence:
    """What a run of the stack under test would have shown."""
    components = {c: parse_version(c, v) for c, v in fields.pop("components", MEASURED).items()}
    return Evidence(
        lease.run.id,
        lease.run.suite,
        fields.pop("sku", GPU),
        parse_version("driver", fields.pop("driver", DRIVER)),
        components,
        outcome,
        int(clock.now().timestamp()),
        **fields,
    )
