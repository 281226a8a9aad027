"""A fault in PyTorch is found by the program that is there for it; PyTorch runs on the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from canary_programs import failed
from torch_programs import run_with_torch

from compatgate.canary.protocol import read_report
from compatgate.canary.run import Report
from compatgate.canary.workloads.manifest import read_workload
from compatgate.resources import canary_dir

TF32 = """
import torch
from torch.nn import functional

def coarse(tensor):
    if tensor.dtype != torch.float32:
        return tensor
    rounded = (tensor.detach().view(torch.int32) + 0x1000) & ~0x1FFF
    return tensor + (rounded.view(torch.float32) - tensor.detach())

def wrapped(function):
    return lambda given, weights, *rest, **more: function(
        coarse(given), coarse(weights), *rest, **more)

functional.conv2d = wrapped(functional.conv2d)
functional.linear = torch.nn.modules.linear.F.linear = wrapped(functional.linear)
"""
UNSTEADY = """
import itertools
from torch.nn import functional
calls, conv2d = itertools.count(), functional.conv2d
functional.conv2d = lambda *given, **how: conv2d(*given, **how) * (1 + next(calls) % 2 * 1e-6)
"""
UNMASKED = """
from torch.nn import functional
attention = functional.scaled_dot_product_attention
functional.scaled_dot_product_attention = lambda q, k, v, is_causal: attention(q, k, v)
"""
LIBRARIES = """
import torch
from torch import linalg

def coarse(tensor):
    return ((tensor.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)

cholesky, qr, fftn = linalg.cholesky, linalg.qr, torch.fft.fftn
linalg.cholesky = lambda a: coarse(cholesky(coarse(a)))
linalg.qr = lambda a: tuple(map(coarse, qr(a)))

def shifted(given, dim):
    found = fftn(given, dim=dim)
    if given.dtype == torch.complex64 and given.dim() == 3:
        found[-1, -1, -1] *= 1.001
    return found

torch.fft.fftn = shifted
product = torch.Tensor.__matmul__
torch.Tensor.__matmul__ = lambda a, b: (
    product(a, coarse(b)) if a.layout == torch.sparse_csr else product(a, b))
"""
PROMPTS_MIXED_UP = """
from torch.nn import functional
attention = functional.scaled_dot_product_attention
functional.scaled_dot_product_attention = lambda q, k, v, is_causal: attention(
    q, k if q.shape[0] == 1 else k.roll(1, 0) * 0.01 + k * 0.99, v, is_causal=is_causal)
"""
MIXED_UP = """
import threading, torch
cpu, last = torch.Tensor.cpu, []
def late(self):
    last.append(cpu(self))
    crowded = threading.active_count() > 4
    return last[-2] if crowded and len(last) > 1 else last[-1]
torch.Tensor.cpu = late
"""
ROUNDED = """
import torch
load = torch.load
def rounded(*given, **how):
    kept = load(*given, **how)
    if "optimizer" in kept:
        state = kept["optimizer"]["state"][0]
        state["exp_avg"] = state["exp_avg"].bfloat16().float()
    return kept
torch.load = rounded
"""
UNREADABLE = """
import torch
def refused(*given, **how):
    raise RuntimeError("Weights only load failed\\nmore")
torch.load = refused
"""


def _with(fault: str, name: str, tmp_path: Path, *arguments: str) -> Report:
    """Run a program in a PyTorch that has a fault."""
    program = canary_dir() / name / "program.py"
    few = ["--device", "cpu", "--repetitions", "1", "--warmup", "0", *arguments]
    code = f"{fault}\nimport runpy, sys\nsys.argv = {[str(program), *few]!r}\n"
    code += f"sys.path.insert(0, {str(program.parent)!r})\n"
    starter = tmp_path / "faulty.py"
    starter.write_text(code + f"runpy.run_path({str(program)!r}, run_name='__main__')\n")
    done = run_with_torch([starter])
    assert done.returncode == 0, done.stderr.decode()
    return read_report([done.stdout], read_workload(canary_dir() / name))


def test_convolutions_in_tf32_are_found_where_full_fp32_was_asked_for(tmp_path: Path) -> None:
    assert set(failed(_with(TF32, "conv", tmp_path))) == {"fp32"}


def test_deterministic_convolutions_that_differ_are_found(tmp_path: Path) -> None:
    found = failed(_with(UNSTEADY, "conv", tmp_path))
    assert "same-bits" in found
    assert "stem in fp32" in found["same-bits"]


def test_attention_that_forgets_the_mask_is_found_in_every_backend(tmp_path: Path) -> None:
    found = failed(_with(UNMASKED, "attention", tmp_path))
    assert set(found) == {"math", "flash"}


def test_coarse_or_wrong_results_of_libraries_are_found(tmp_path: Path) -> None:
    found = set(failed(_with(LIBRARIES, "math-libraries", tmp_path)))
    sparse = {"sparse-matrix-right", "sparse-vector-right"}
    assert found == {"cholesky-right", "qr-right", "fft-2d-right", *sparse}


def test_prompts_that_leak_into_each_other_and_tf32_are_found(tmp_path: Path) -> None:
    found = set(failed(_with(TF32 + PROMPTS_MIXED_UP, "llm-serving", tmp_path)))
    assert found == {"batch", "cache", "fp32-answers"}


def test_a_training_in_tf32_leaves_the_curve(tmp_path: Path) -> None:
    found = failed(_with(TF32, "train-step", tmp_path))
    assert "convnet-fp32" in found
    assert "convnet-reduced" not in found


def test_answers_that_are_mixed_up_under_concurrency_are_found(tmp_path: Path) -> None:
    assert set(failed(_with(MIXED_UP, "inference-tail", tmp_path))) == {"answers"}


@pytest.mark.parametrize(("fault", "check"), [(ROUNDED, "values"), (UNREADABLE, "loads")])
def test_a_checkpoint_that_is_not_what_was_saved_is_found(
    fault: str, check: str, tmp_path: Path
) -> None:
    arguments = () if fault is ROUNDED else ("--saved", str(canary_dir() / "checkpoint" / "saved"))
    code = fault if fault is ROUNDED else fault.replace("torch.load = refused", _ONLY_THE_FIRST)
    found = failed(_with(code, "checkpoint", tmp_path, *arguments))
    assert check in found


_ONLY_THE_FIRST = """
load, torch.load = torch.load, lambda *g, **h: (
    refused() if str(g[0]).endswith("saved/checkpoint.pt") else load(*g, **h))
"""


def test_a_checkpoint_of_the_stack_itself_can_be_handed_over(tmp_path: Path) -> None:
    _with("", "checkpoint", tmp_path, "--save", str(tmp_path / "ours"))
    report = _with("", "checkpoint", tmp_path, "--saved", str(tmp_path / "ours"))
    assert failed(report) == {}
