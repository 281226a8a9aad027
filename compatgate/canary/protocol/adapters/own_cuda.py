"""A tool whose own CUDA is too new for the driver: that says nothing of the stack under test.

Two things together show it, and neither alone does:

- the tool fails in its own words, in the form that only its own code prints. What a library of the
  stack logs beside it (``NCCL WARN Cuda failure ...``), or a program of the stack raises, has
  another form and counts against the stack;
- the code that failed is the tool's. gpu-burn names it: the kernel file that it loads was built
  with it. nvbandwidth and nccl-tests fail in a CUDA runtime, which is theirs only if it is linked
  into them: ``own_cuda`` of the env line, which ``canary/lib/canary_tool.py`` reads off the tool's
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
    """Return whether an error of nvbandwidth is its own; then it is noted."""
    return _linked(found) and _noted(_NVBANDWIDTH, message, found)


def note_nccl_tests(line: str, found: ToolResults) -> bool:
    """Return whether a line of nccl-tests is a failure of its own; then it is noted.

    PTX is left out: the tool launches kernels of NCCL, which is under test, beside its own.
    """
    return _linked(found) and _noted(_NCCL_TESTS, line, found)


def note_gpu_burn(line: str, found: ToolResults) -> bool:
    """Return whether a line of gpu-burn is a failure of its own; then it is noted.

    It has no CUDA runtime, and what cuBLAS says comes from the image under test.
    """
    return _noted(_GPU_BURN, line, found)


def _linked(found: ToolResults) -> bool:
    return found.env is not None and found.env.other.get("own_cuda") is True


def _noted(pattern: re.Pattern[str], text: str, found: ToolResults) -> bool:
    if pattern.fullmatch(text.strip()) is None:
        return False
    found.own_fault(text.strip())
    return True
