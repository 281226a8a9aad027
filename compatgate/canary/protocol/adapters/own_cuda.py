"""Recognize a tool whose own CUDA is too new for the driver; that says nothing about the stack.

Two conditions together prove it; neither is enough alone:

- The tool fails with its own message, in a form that only its own code prints. A message of the
  stack's libraries (``NCCL WARN Cuda failure ...``) or of a program of the stack has another form
  and counts against the stack.
- The code that failed is the tool's. gpu-burn names it: it loads a kernel file that was built with
  it. nvbandwidth and nccl-tests fail in a CUDA runtime, which is theirs only if it is linked into
  them: ``own_cuda`` of the env line, which ``canary/lib/canary_tool.py`` reads from the tool's
  file. A tool that loads the image's libcudart fails as the image's own programs would.

Source: https://github.com/NVIDIA/nvbandwidth ``error_handling.h``,
https://github.com/NVIDIA/nccl-tests ``src/common.h``, https://github.com/wilicc/gpu-burn
``gpu_burn-drv.cpp``; the messages are those of ``cudaGetErrorString(35)`` and ``(222)``, the same
in CUDA 12 and 13.
"""

from __future__ import annotations

import re

from compatgate.canary.protocol.adapters.tool import ToolResults

_RUNTIME = "CUDA driver version is insufficient for CUDA runtime version"
_PTX = r"the provided PTX was compiled with an unsupported toolchain\.?"
_NVBANDWIDTH = re.compile(
    rf"\[(?:cudaErrorInsufficientDriver\] {_RUNTIME}"
    rf"|(?:cudaErrorUnsupportedPtxVersion|CUDA_ERROR_UNSUPPORTED_PTX_VERSION)\] {_PTX})"
    r" in expression .+"
)
_NCCL_TESTS = re.compile(rf"(?:\S+:)? ?Test CUDA failure \S+:\d+ '{_RUNTIME}'")
_GPU_BURN = re.compile(rf"Couldn't init a GPU test: Error in load module \([^()]+:\d+\): {_PTX}")


def note_nvbandwidth(message: str, found: ToolResults) -> bool:
    """Record an error of nvbandwidth if it is the tool's own; return whether it is."""
    return _linked(found) and _noted(_NVBANDWIDTH, message, found)


def note_nccl_tests(line: str, found: ToolResults) -> bool:
    """Record a failure of nccl-tests if it is the tool's own; return whether it is.

    PTX is left out: the tool also launches kernels of NCCL, which is under test.
    """
    return _linked(found) and _noted(_NCCL_TESTS, line, found)


def note_gpu_burn(line: str, found: ToolResults) -> bool:
    """Record a failure of gpu-burn if it is the tool's own; return whether it is.

    gpu-burn has no CUDA runtime, and errors of cuBLAS come from the image under test.
    """
    return _noted(_GPU_BURN, line, found)


def _linked(found: ToolResults) -> bool:
    return found.env is not None and found.env.other.get("own_cuda") is True


def _noted(pattern: re.Pattern[str], text: str, found: ToolResults) -> bool:
    if pattern.fullmatch(text.strip()) is None:
        return False
    found.own_fault(text.strip())
    return True
