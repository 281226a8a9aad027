"""What was measured elsewhere: pairs, reports of other tools."""

from __future__ import annotations

import json
from collections.abc import Callable

import msgspec

from compatgate.canary.imports import READERS
from compatgate.canary.judge.measurements import read_pairs
from compatgate.canary.judge.paired.suite import judge_pairs
from compatgate.canary.workload import MetricSpec
from targets.target import Target


def targets() -> dict[str, Target]:
    """Readers of pairs and reports."""
    block = {"type": "metric", "name": "t", "unit": "ms", "block": 1, "values": [1.2, 1.3, 2e3]}
    pairs = "".join(
        json.dumps({**block, "arm": arm, "pair": pair, "block": 1, "values": [1.2, 1.3, 2e3]})
        + "\n"
        for pair in range(6)
        for arm in "AB"
    )
    return {
        **{f"import-{name}": Target(_reading(name), [_REPORTS[name].encode()]) for name in READERS},
        "pairs": Target(_judge, [pairs.encode(), pairs.replace("ms", "errors").encode()]),
    }


def _judge(data: bytes) -> object:
    found = read_pairs(data, source="x.jsonl")
    specs = {name: MetricSpec(s.unit, "lower") for name, s in found.metrics.items()}
    return msgspec.to_builtins(judge_pairs(specs, found.metrics, checks=found.checks))


_DCGM_TEST = {"name": "Memory", "results": [{"entity_id": 0, "status": "Pass"}]}
_DCGM = {"DCGM Diagnostic": {"test_categories": [{"category": "Hardware", "tests": [_DCGM_TEST]}]}}
_REPORTS: dict[str, str] = {
    "dcgm": json.dumps(_DCGM),
    "nccl-tests": "# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor)\n",
    "jsonl": '{"type": "env", "host": "n1"}\n{"type": "check", "name": "a", "ok": true}\n',
}


def _reading(name: str) -> Callable[[bytes], object]:
    return lambda data: READERS[name](data.decode("utf-8", "replace"))  # type: ignore[index]
