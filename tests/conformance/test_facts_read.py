"""Every fact file is read by a rule, or by the one part of the program that it names here."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from compatgate.catalog import build, load_facts
from compatgate.catalog.sources import names
from compatgate.core.evaluate import evaluate
from compatgate.core.facts import Facts
from compatgate.core.gpus import resolve_gpu
from compatgate.core.request import Pool, Target
from compatgate.core.stack import parse_stack
from compatgate.core.versions import parse_version

NOT_FOR_RULES = {
    "error_signatures": "triage names causes of error texts by it",
    "gpu_peaks": "canaries are judged against peaks",
    "image_signals": "images are read by it",
    "platform_machines": "machines are recognised by it",
    "require_cuda": "the language that core/requirements reads; its images are asked as tests",
    "wheel_places": "wheels are measured at it",
    "xid": "health reads kernel logs by it",
}
NODE = {
    "kernel": "6.8.0-45-generic",
    "kernel-modules": "open",
    "distribution": "ubuntu-24.04",
    "container-toolkit": "1.17.8",
}
A100 = {"gpu": "A100-SXM4-80GB", "driver": "535.104.05"}
QUESTIONS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({**A100, "node": NODE, "platform": "bare-metal"}, {"cuda": "12.4", "glibc": "2.35"}),
    (A100, {"cuda": "12.8", "cuda-compat": "12.8", "cudnn": "9.1.0+cu12", "nccl": "2.21.5+cu12"}),
    (A100, {"cuda": "12.4", "gcc": "12.2", "needs": ["fp8"]}),
    (A100, {"tritonserver": "24.08"}),
    (A100, {"nvidia-cublas-cu12": "12.4.5.8", "xformers": "0.0.28", "torch": "2.4.1+cu121"}),
    ({"gpu": "AGX-Orin-64GB", "driver": "540.4.0", "node": {"l4t": "36.4.3"}}, {"cuda": "12.6"}),
    ({"gpu": "GRID T4-8C", "driver": "535.161.08", "platform": "vgpu"}, {"cuda": "12.2"}),
]


def test_every_fact_file_is_read_by_a_rule() -> None:
    shipped = load_facts()
    loaded: set[str] = set()

    def load(name: str, kind: type[Any]) -> Any:
        loaded.add(name)
        return shipped.load(name, kind)

    facts = Facts(load, "", (), shipped.framework_names, shipped.recorded)
    for pool, stack in [*QUESTIONS, *((A100, {name: "1.0"}) for name in _named(shipped))]:
        gpu, driver = resolve_gpu(pool["gpu"], facts.gpus), parse_version("driver", pool["driver"])
        cpu = gpu.cpu or "x86_64"
        one = Pool(
            "", gpu, driver, "linux", cpu, 1, pool.get("platform"), None, pool.get("node", {})
        )
        now = datetime(2026, 11, 21, tzinfo=UTC)
        evaluate(parse_stack(stack), Target("", (one,)), facts=facts, now=now)
    read = {source for source in names() if loaded & set(build.typed_tables(source))}
    assert set(names()) - read == set(NOT_FOR_RULES)


def _named(facts: Facts) -> list[str]:
    return sorted(facts.recorded | facts.framework_names)
