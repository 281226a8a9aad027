"""A run whose steps are existing tools: what counts as measured, and what becomes of it."""

import json
from pathlib import Path

import msgspec
import pytest
from engine_edges import Memory, Script, exited

from compatgate.canary.engine.drive import drive
from compatgate.canary.protocol import make_reader
from compatgate.canary.workload import ImageSpec, Workload

SAMPLES = Path(__file__).parents[1] / "protocol" / "samples"
TABLE = (SAMPLES / "nccl-all-reduce-h100-nvl.txt").read_bytes()
LOG = b"gpu-0001:7:9 [0] NCCL INFO Channel 00/0 : 1[1] -> 2[0] [send] via %s\n"
LOADED = Workload(
    "libraries-loaded", "", ("x",), ImageSpec(inside=True), gpus=1, checks={"imports": "they can"}
)
NCCL = Workload(
    "nccl-tests",
    "",
    ("x",),
    ImageSpec(inside=True),
    gpus=2,
    adapter="nccl-tests",
    checks={"right": "no wrong value", "transport": "no sockets"},
)


def _env(**versions):
    gpus = [{"name": "NVIDIA A100-SXM4-80GB"}]
    env = {"type": "env", "driver": "535.104.05", "gpus": gpus, "versions": versions}
    return json.dumps(env).encode() + b"\n"


def _drive(context, lease, *tool):
    loaded = (_env(cuda="12.4"), b'{"type": "check", "name": "imports", "ok": true}\n')
    queue = Memory()
    executor = Script((loaded, exited()), (tool, exited()))
    made = context(executor, queue, workloads=(LOADED, NCCL))
    drive(lease, msgspec.structs.replace(made, reader=make_reader))
    return queue.ended


def test_the_suites_steps_together_measure_the_stack(context, lease):
    outcome, reason, evidence = _drive(context, lease, TABLE, LOG % b"NET/IB/0/GDRDMA", _env())
    assert (outcome, reason) == ("passed", "")
    assert {name: str(version) for name, version in evidence.components.items()} == {
        "cuda": "12.4",
        "nccl": "2.30.5",
    }


def test_an_all_reduce_over_sockets_is_evidence_against_the_stack(context, lease):
    outcome, reason, evidence = _drive(context, lease, TABLE, LOG % b"NET/Socket/0", _env())
    assert outcome == "failed"
    assert "check transport failed: fell back to TCP sockets" in reason
    assert evidence.outcome == "failed"


@pytest.mark.parametrize(
    ("tool", "reason"),
    [
        ((TABLE, LOG % b"NET/IB/0"), "steps saw different GPUs: A100-SXM4-80GB, H100-NVL-94GB"),
        (
            (TABLE[:-200], LOG % b"NET/IB/0", _env()),
            "nccl-tests-0: printed unreadable output: line 24: the row",
        ),
        ((TABLE, LOG % b"NET/IB/0", _env(nccl="2.29.3")), "nccl is both 2.29.3 and 2.30.5"),
        ((TABLE, LOG % b"NET/IB/0", _env(cuda="12.6")), "steps measured cuda 12.4 and 12.6"),
    ],
)
def test_what_is_missing_or_disagrees_is_no_evidence(context, lease, tool, reason):
    outcome, said, evidence = _drive(context, lease, *tool)
    assert outcome == "inconclusive"
    assert reason in said
    assert evidence is None
