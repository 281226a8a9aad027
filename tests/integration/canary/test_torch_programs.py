"""Programs that need PyTorch: with it on the CPU where it is installed, and their names without it.

PyTorch with CUDA takes 5 GB: CI installs it where there is room. What is held without it: a program
says that it is not there, and uses no name of PyTorch that a real one was not seen to have.
"""

from __future__ import annotations

import ast
import importlib.util
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from canary_programs import (
    NO_GPU,
    NOTHING_TO_TEST,
    REAL_GPU,
    failed,
    keeps_to_its_manifest,
    output,
    run,
    torch_python,
)
from torch_programs import run_with_torch

from compatgate.canary.protocol import read_report
from compatgate.canary.run import Report
from compatgate.canary.workloads.library import read_workload
from compatgate.resources import canary_dir

NAMES = Path(__file__).parent / "stand_ins" / "torch-names.txt"
PROGRAMS = (
    "gemm",
    "gemm-fp8",
    "cuda-graph",
    "conv",
    "attention",
    "train-step",
    "inference-tail",
    "math-libraries",
    "llm-serving",
    "checkpoint",
    "compile",
    "model-load",
    "data-loader",
    "overlap",
    "shared-gpu",
    "nccl-allreduce",
    "fsdp",
    "burn",
)
FEW = ("--device", "cpu", "--repetitions", "2", "--warmup", "0")
MORE = {"burn": ("--for", "1s")}
BARE = "gemm-fp8"
"""The program that is started as a user would, and imports PyTorch by itself."""


@pytest.mark.parametrize("name", PROGRAMS)
def test_on_the_cpu_a_program_keeps_to_its_manifest_and_its_checks_hold(name: str) -> None:
    if name == BARE:
        report = run(name, *FEW, python=torch_python(), environment={"OMP_NUM_THREADS": "1"})
    else:
        few = (*FEW, *MORE.get(name, ()))
        done = run_with_torch([canary_dir() / name / "program.py", *few])
        assert done.returncode == 0, done.stderr.decode()
        report = read_report([done.stdout], read_workload(canary_dir() / name))
    keeps_to_its_manifest(name, report)
    assert failed(report) == {}
    assert report.env is not None
    assert "torch" in report.env.versions


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_image_without_pytorch_has_nothing_to_test(name: str) -> None:
    if importlib.util.find_spec("torch"):
        pytest.skip("PyTorch is installed here")
    said = output(name, *FEW, status=NOTHING_TO_TEST).decode().splitlines()
    assert len(said) == 2
    assert said[1] == f"{name}: nothing to test: {sys.executable} has no PyTorch"


@pytest.mark.skipif(REAL_GPU, reason="there is a GPU here")
@pytest.mark.parametrize("name", PROGRAMS)
def test_without_a_gpu_a_program_says_so_in_one_line(name: str) -> None:
    said = output(name, status=NO_GPU).decode()
    assert said.startswith(f"{name}: no GPU: ")
    assert said.count("\n") == 1


def _as_nodes(tmp_path: Path, fault: str = "") -> Report:
    """What the first of two processes reports that stand for nodes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = canary_dir() / "nccl-nodes" / "program.py"
    starter = tmp_path / "nodes.py"
    starter.write_text(f"""
import os, runpy, sys
os.environ.update(COMPATGATE_NODES="2", MASTER_ADDR="127.0.0.1", MASTER_PORT="{port}")
os.environ.update(COMPATGATE_NODE="0" if os.fork() else "1", GLOO_SOCKET_IFNAME="lo")
if os.environ["COMPATGATE_NODE"] == "1":
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    {fault}
sys.argv = {[str(program), *FEW]!r}
sys.path.insert(0, {str(program.parent)!r})
runpy.run_path({str(program)!r}, run_name="__main__")
""")
    done = run_with_torch([starter])
    assert done.returncode == 0, done.stderr.decode()
    return read_report([done.stdout], read_workload(program.parent))


def test_two_processes_reduce_as_nodes_do(tmp_path: Path) -> None:
    report = _as_nodes(tmp_path)
    keeps_to_its_manifest("nccl-nodes", report)
    assert failed(report) == {}


def test_a_node_whose_sums_are_wrong_is_found_by_the_first_one(tmp_path: Path) -> None:
    fault = (
        "from torch import distributed as d; whole = d.all_reduce; "
        "d.all_reduce = lambda t, op=d.ReduceOp.SUM: (whole(t, op=op), "
        "t.numel() > 1 and op == d.ReduceOp.SUM and t[:1].add_(1))"
    )
    assert set(failed(_as_nodes(tmp_path, fault))) == {"all-reduce-right", "agree"}


def test_a_program_for_nodes_has_nothing_to_test_on_one() -> None:
    done = run_with_torch([canary_dir() / "nccl-nodes" / "program.py", *FEW])
    said = done.stdout.decode().splitlines()[-1]
    assert said.startswith("nccl-nodes: nothing to test: it was started on one node only: ")


def _chain(node: ast.AST) -> str | None:
    """``torch.cuda.Event`` of an expression that begins with PyTorch, under any of its names."""
    parts = []
    while isinstance(node, ast.Attribute):
        if node.attr == "_torch":
            return ".".join(["torch", *reversed(parts)])
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name) and node.id == "torch":
        return ".".join(["torch", *reversed(parts)])
    return None


def _used() -> set[str]:
    found = set()
    for file in canary_dir().rglob("*.py"):
        chains = [n for n in ast.walk(ast.parse(file.read_text())) if isinstance(n, ast.Attribute)]
        parts = {id(node.value) for node in chains}
        whole = (node for node in chains if id(node) not in parts)
        found |= {name for node in whole if (name := _chain(node)) and "." in name}
    return found


def test_every_name_of_pytorch_that_programs_use_is_one_that_was_seen() -> None:
    known = {line for line in NAMES.read_text().splitlines() if not line.startswith("#")}
    assert sorted(_used() - known) == []


def test_the_names_that_were_seen_are_those_of_pytorch() -> None:
    code = """
import sys, torch
for name in sys.stdin.read().split():
    found = torch
    for part in name.split(".")[1:]:
        found = getattr(found, part)
"""
    names = "\n".join(line for line in NAMES.read_text().splitlines() if not line.startswith("#"))
    command = [torch_python(), "-c", code]
    done = subprocess.run(command, input=names, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
