"""Readers of existing tools' unmodified output: one module per tool, pure functions on text.

A tool does not print the line protocol. Its reader finds metrics, checks and versions in the tool's
output; driver, GPUs and loaded libraries come from the ``env`` line that
``canary/lib/canary_tool.py`` prints in addition. Damaged output is a problem of the report, never
fewer results.
"""

from compatgate.canary.protocol.adapters.dcgm import read_dcgm
from compatgate.canary.protocol.adapters.nccl_tests import read_nccl_tests
from compatgate.canary.protocol.adapters.nvbandwidth import read_nvbandwidth
from compatgate.canary.protocol.adapters.tool import ToolOutput, ToolReader

__all__ = ["TOOLS", "ToolOutput"]

TOOLS: dict[str, ToolReader] = {
    "nccl-tests": read_nccl_tests,
    "nvbandwidth": read_nvbandwidth,
    "dcgm-diag": read_dcgm,
}
"""Adapter, as in ``workload.toml``, to the reader of the tool's output."""
