"""A fault in PyTorch is found by the program that is there for it; PyTorch runs on the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from canary_programs import failed
from torch_programs import run_with_torch

from compatgate.canary.protocol import read_report
from compatgate.canary.run import Report
from compatgate.canary.workloads.library import read_workload
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

COMPILED = """
import torch
import torch._dynamo
from torch._dynamo.backends import registry
torch._dynamo.config.automatic_dynamic_shapes = False

def larger(graph, inputs, **how):
    return lambda *given: tuple(part * 1.001 for part in graph(*given))

registry.lookup_backend = lambda name: larger if isinstance(name, str) else name
"""
NO_COMPILER = """
import torch
from torch._dynamo.backends import registry

def refused(graph, inputs, **how):
    raise RuntimeError("Failed to find C compiler.\\nPlease specify via CC")

registry.lookup_backend = lambda name: refused if isinstance(name, str) else name
"""
OTHER_BYTES = """
import os, torch
to, preadv = torch.Tensor.to, os.preadv

def changed(self, *given, **how):
    found = to(self, *given, **how)
    if how.get("copy"):
        found[-1] ^= 1
    return found

torch.Tensor.to = changed
os.preadv = lambda number, buffers, start: preadv(number, buffers, max(start, 8192))
"""
OTHER_ORDER = """
from torch.utils import data

class Other(data.DataLoader):
    def __init__(self, given, num_workers, **how):
        super().__init__(given, num_workers=num_workers - 1, shuffle=len(given) < 1000, **how)

data.DataLoader = Other
"""
ONLY_TOGETHER = """
import torch
from torch import distributed
all_reduce, matmul, running = distributed.all_reduce, torch.matmul, []

def reduce(tensor, op, async_op=False):
    running[:] = [async_op]
    return all_reduce(tensor[1:] if async_op else tensor, op=op, async_op=async_op)

def multiply(a, b, out=None):
    matmul(a, b, out=out)
    if running == [True]:
        out[3, 5] += 8

distributed.all_reduce, torch.matmul = reduce, multiply
"""
DISTURBED = """
import multiprocessing, torch
from torch.nn import functional
linear, matmul = functional.linear, torch.matmul
functional.linear = torch.nn.modules.linear.F.linear = lambda x, *rest: linear(x, *rest) * (
    1.1 if x.dtype == torch.bfloat16 and multiprocessing.active_children() else 1)

def multiply(a, b, out):
    matmul(a, b, out=out)
    out[3, 5] += 1

torch.matmul = multiply
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
    assert set(found) == {"math", "flash", "timed"}


def test_coarse_or_wrong_results_of_libraries_are_found(tmp_path: Path) -> None:
    found = set(failed(_with(LIBRARIES, "math-libraries", tmp_path)))
    sparse = {"sparse-matrix-right", "sparse-vector-right"}
    assert found == {"cholesky-right", "qr-right", "fft-2d-right", *sparse}


def test_prompts_that_leak_into_each_other_and_tf32_are_found(tmp_path: Path) -> None:
    found = set(failed(_with(TF32 + PROMPTS_MIXED_UP, "llm-serving", tmp_path)))
    assert found == {"batch", "cache", "fp32-answers"}


def test_compiled_code_that_is_wrong_and_compiled_for_each_size_is_found(tmp_path: Path) -> None:
    found = failed(_with(COMPILED, "compile", tmp_path))
    assert set(found) == {"fp32-right", "recompiles"}
    assert found["recompiles"] == "graphs for 3 sizes: 3, allowed 2"


def test_a_model_that_does_not_compile_is_a_failure_that_says_why(tmp_path: Path) -> None:
    report = _with(NO_COMPILER, "compile", tmp_path)
    assert "Failed to find C compiler." in failed(report)["compiles"]
    assert "forward" not in {metric.name for metric in report.metrics}


def test_weights_that_arrive_changed_or_in_another_place_are_found(tmp_path: Path) -> None:
    found = failed(_with(OTHER_BYTES, "model-load", tmp_path))
    assert found["mapped-right"] == "16 of 16 tensors differ, layers.0.weight first"
    assert found["direct-right"] == "16 of 16 tensors differ, layers.0.weight first"


def test_samples_out_of_order_and_a_worker_too_few_are_found(tmp_path: Path) -> None:
    found = failed(_with(OTHER_ORDER, "data-loader", tmp_path))
    assert found == {
        "complete": "24 of 24 samples came, 0 of them wrong, in another order",
        "workers": "1 of 2 workers delivered",
    }


def test_what_is_wrong_only_while_both_run_is_found(tmp_path: Path) -> None:
    found = failed(_with(ONLY_TOGETHER, "overlap", tmp_path))
    assert set(found) == {"sums-right", "products-right"}


def test_results_that_are_wrong_only_on_a_shared_gpu_are_found(tmp_path: Path) -> None:
    assert set(failed(_with(DISTURBED, "shared-gpu", tmp_path))) == {"answers", "neighbour-right"}


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
