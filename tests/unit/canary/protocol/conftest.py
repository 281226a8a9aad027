"""Samples of tools' output, and readers for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from compatgate.canary.protocol import TOOLS
from compatgate.canary.protocol.tool import ToolOutput
from compatgate.canary.run import Report
from compatgate.canary.workload import ImageSpec, Workload

SAMPLES = Path(__file__).parent / "samples"


@pytest.fixture
def sample() -> Callable[[str], str]:
    """The text of a sample."""
    return lambda name: (SAMPLES / name).read_text()


@pytest.fixture
def read() -> Callable[..., Report]:
    """The report of a tool's output; without a workload, of everything in it.

    Text is given an end of line, as tools do; bytes are taken as they are.
    """

    def reading(tool: str, output: str | bytes, workload: Workload | None = None) -> Report:
        reader = ToolOutput(TOOLS[tool], workload)
        if isinstance(output, str):
            output = f"{output}\n".encode()
        reader.feed(output)
        return reader.report()

    return reading


@pytest.fixture
def workload() -> Workload:
    """A workload that declares nothing."""
    return Workload(name="w", description="", command=("x",), image=ImageSpec(inside=True))


@pytest.fixture
def values() -> Callable[[Report], dict[str, tuple[float, ...]]]:
    """Values of a report's metrics by name."""
    return lambda report: {metric.name: metric.values for metric in report.metrics}


@pytest.fixture
def checks() -> Callable[[Report], dict[str, bool]]:
    """What each check of a report came to."""
    return lambda report: {check.name: check.ok for check in report.checks}
