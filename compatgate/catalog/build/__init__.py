"""One adapter per fact file, from what domain experts write to what the rules read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Table(NamedTuple):
    """How a table comes about.

    Attributes:
        source: the fact file, without its ending.
        adapter: module and function of this package; empty: the file as it is.
    """

    source: str
    adapter: str


TABLES: dict[str, Table] = {
    "cuda_driver": Table("cuda_driver", "cuda_driver"),
    "driver_branches": Table("driver_branches", "driver_branches"),
    "forward_compat": Table("forward_compat", "forward_compat"),
    "gpus": Table("gpus", "gpus"),
    "cuda_arch_support": Table("cuda_arch_support", "cuda_arch"),
    "cudnn": Table("cudnn", "cudnn"),
    "nccl": Table("nccl", "nccl"),
    "known_issues": Table("known_issues", "known_issues"),
    "cuda_components": Table("cuda_components", "cuda_components"),
    "packages": Table("components", "packages"),
    "xid": Table("xid", "xid"),
    "gpu_peaks": Table("gpu_peaks", "gpu_peaks"),
    "framework/torch": Table("pytorch", "pytorch"),
    "framework/tensorflow": Table("tensorflow", "tensorflow"),
    "framework/jax": Table("jax", "jax"),
    "framework/onnxruntime-gpu": Table("onnxruntime", "onnxruntime"),
    "framework/vllm": Table("vllm", "vllm"),
    "framework/cupy": Table("cupy", "cupy"),
    "framework/tensorrt": Table("tensorrt", "tensorrt"),
}
"""Every typed table. Beside them each fact file has a table ``source/NAME``, the file as it is."""

FRAMEWORKS = frozenset(
    name.removeprefix("framework/") for name in TABLES if name.startswith("framework/")
)
"""Components that have a table ``framework/NAME``."""


def table(name: str) -> Table:
    """The entry of a table.

    Raises:
        KeyError: there is no such table.
    """
    if name.startswith("source/"):
        return Table(name.removeprefix("source/"), "")
    return TABLES[name]


def adapt(name: str, document: dict[str, Any]) -> Any:
    """The table of this name, from its parsed file."""
    adapter = table(name).adapter
    if not adapter:
        return document
    from importlib import import_module

    module = import_module(f"{__name__}.{adapter}")
    function: Callable[[dict[str, Any]], Any] = getattr(module, adapter)
    return function(document)
