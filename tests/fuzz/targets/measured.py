"""What was measured elsewhere: samples of workloads, and baselines."""

from __future__ import annotations

import json

from sample_runs import GEMM, sample_source

from compatgate.canary.judge.baseline import learn
from compatgate.canary.samples.baseline_files import (
    make_baseline_line,
    make_head_line,
    make_sample_key,
    read_baseline_files,
)
from compatgate.catalog import load_facts
from compatgate.documents.sources import Source
from targets.target import Target


def targets() -> dict[str, Target]:
    """Readers of samples and of baselines."""
    facts = load_facts([])
    sample = sample_source(facts)
    offered = read_baseline_files([sample], {"gemm": GEMM}, facts)
    ((found, _),) = offered.samples
    ground, spec = make_sample_key(found), GEMM.metrics["time"]
    accepted = [(found.head.key, found.values()[0])]
    sources = {found.head.key: found.source}
    learnt = learn(
        ground.workload, ground.sku, ground.family, "time", spec, accepted, sources=sources
    )
    when = found.head.measured_at
    line = make_baseline_line(learnt, approved_by="mara", approved_at=when)
    lines = "".join(f"{json.dumps(each)}\n" for each in (make_head_line(when), line))

    def read(data: bytes) -> object:
        text = Source("x.jsonl", data.decode("utf-8", "replace"))
        return read_baseline_files([text], {"gemm": GEMM}, facts)

    return {
        "sample": Target(read, [sample.text.encode()]),
        "baselines": Target(read, [lines.encode()]),
    }
