"""What bench/gpu.py runs, and in which order: everything once, then what is to be found."""

from __future__ import annotations

import os
import re
import shutil
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from compatgate.canary.workload import Workload

SEEDED = Path(__file__).with_name("gpu_seeded.toml")
FIRST = (
    "device-visible",
    "libraries-loaded",
    "gemm",
    "memory-bandwidth",
    "gemm-fp8",
    "ptx-jit",
    "conv",
    "attention",
    "cuda-graph",
    "train-step",
    "checkpoint",
    "extension",
    "inference-tail",
    "compile",
)
"""In this order; whatever else there is comes after them."""
ON_CPU = ("busy", "gemm", "gemm-fp8", "memory-bandwidth", "conv", "attention", "cuda-graph")
"""Programs that take ``--device cpu``, and are soon done with it."""
SHORTER = {"soak": {"4h": "60s"}, "burn": {"5m": "60s"}}
"""Arguments of hours, and what stands for them here."""
TOOLS = {"inference-tail-triton": "tritonserver", "video-decode": "ffmpeg"}
"""Programs of the image that a workload calls."""
Kind = Literal["baseline", "equal", "seeded"]


class Seeded(Struct, frozen=True, forbid_unknown_fields=True):
    """A regression that is made on purpose; see ``gpu_seeded.toml``."""

    name: str
    workload: str
    devices: tuple[str, ...]
    slower: tuple[str, ...]
    says: str
    environment: dict[str, str] = {}
    handicap: str = ""
    every: bool = False


class Step(Struct, frozen=True):
    """One execution; ``label`` is unique among a workload's."""

    workload: str
    kind: Kind
    label: str


def read_seeded(device: str) -> dict[str, Seeded]:
    """Those that can be made on a device, by name."""
    rows = tomllib.loads(SEEDED.read_text())["seeded"]
    every = [msgspec.convert(row, Seeded) for row in rows]
    return {one.name: one for one in every if device in one.devices}


def steps(names: Sequence[str], seeded: Mapping[str, Seeded], baselines: int) -> list[Step]:
    """Every workload once; what is to be found, beside an equal run; then more of the same.

    So an interruption leaves first a figure of everything, then the judgements that were asked for.
    """
    wanted = [one for name in names for one in seeded.values() if one.workload == name]
    hunted = list(dict.fromkeys(one.workload for one in wanted))
    found = [Step(name, "baseline", "baseline-1") for name in names]
    for name in hunted:
        found.append(Step(name, "equal", "equal"))
        found += [Step(name, "seeded", one.name) for one in wanted if one.workload == name]
    found += [Step(name, "equal", "equal") for name in names if name not in hunted]
    for number in range(2, baselines + 1):
        found += [Step(name, "baseline", f"baseline-{number}") for name in names]
    return found


def ordered(names: Sequence[str]) -> list[str]:
    """Names in the order of `FIRST`."""
    rank = {name: number for number, name in enumerate(FIRST)}
    return sorted(names, key=lambda name: (rank.get(name, len(rank)), name))


def lacking(workload: Workload, device: str, gpus: int) -> str:
    """Why a workload cannot be run here; "" where it can, as far as can be told beforehand."""
    if device == "cpu":
        return "" if workload.name in ON_CPU else "it has no small form for the CPU"
    if not workload.gpus:
        return "it needs no GPU"
    if workload.nodes > 1:
        return f"it needs {workload.nodes} nodes"
    if workload.gpus > gpus:
        return f"it needs {workload.gpus} GPUs, and {gpus} {'is' if gpus == 1 else 'are'} here"
    if workload.adapter == "jsonl":
        tool = TOOLS.get(workload.name)
        return f"there is no {tool} here" if tool and not shutil.which(tool) else ""
    named = re.search(r"/opt/[\w/.-]+", " ".join(workload.command))
    if named and not os.path.exists(named[0]):
        return f"there is no {named[0]} here"
    return "there is no dcgmi here" if not named and not shutil.which("dcgmi") else ""


def command(
    workload: Workload,
    step: Step,
    seeded: Seeded | None,
    device: str,
    python: str,
    few: int | None,
    value_ms: int | None = None,
) -> list[str]:
    """The argument vector, with the interpreter of this machine.

    Args:
        workload: whose command it is, called in its folder.
        step: says nothing but the kind where ``seeded`` is None.
        seeded: the regression to make.
        device: ``cuda`` or ``cpu``.
        python: interpreter that has PyTorch.
        few: repetitions, where not the program's own number.
        value_ms: least milliseconds of one value, where not the program's own number.
    """
    shorter = SHORTER.get(workload.name, {})
    first, *rest = [shorter.get(part, part) for part in workload.command]
    parts = [python if first == "python3" else first, *rest]
    if seeded and seeded.handicap:
        helper = str(Path(__file__).with_name("handicapped.py"))
        parts[1:1] = [helper, seeded.handicap]
    if workload.adapter == "jsonl":
        parts += ["--device", "cpu"] if device == "cpu" else []
        takes = "{seed}" in " ".join(workload.command)
        parts += ["--repetitions", str(few)] if few and takes else []
        parts += ["--value-ms", str(value_ms)] if value_ms and takes else []
    return [part.replace("{seed}", str(workload.seeds[0])) for part in parts]
