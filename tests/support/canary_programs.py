"""Shipped canary programs, run bare as a user would, and their lines read as the engine does."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from compatgate.canary.protocol import read_report
from compatgate.canary.run import Report
from compatgate.canary.workloads.library import read_workload
from compatgate.resources import canary_dir

NO_GPU, NOTHING_TO_TEST = 77, 78
TORCH = "COMPATGATE_TEST_TORCH"
"""Names an interpreter that has PyTorch, in place of the one that ``make torch`` installs."""
INSTALLED_TORCH = Path(__file__).parents[2] / ".venv-torch" / "bin" / "python"
REAL_GPU = Path("/proc/driver/nvidia").exists()


def run(
    name: str,
    *arguments: str,
    libraries: Path | None = None,
    status: int = 0,
    environment: dict[str, str] | None = None,
    python: str = sys.executable,
) -> Report:
    """Run a program; what it reported.

    Args:
        name: of the workload.
        arguments: of the program.
        libraries: folder of stand-ins.
        status: that it must end with.
        environment: on top of this process's.
        python: interpreter that runs it.
    """
    said = output(
        name,
        *arguments,
        libraries=libraries,
        status=status,
        environment=environment,
        python=python,
    )
    return read_report([said], read_workload(canary_dir() / name))


def output(
    name: str,
    *arguments: str,
    libraries: Path | None = None,
    status: int = 0,
    environment: dict[str, str] | None = None,
    python: str = sys.executable,
) -> bytes:
    """As `run`, its standard output."""
    done = subprocess.run(
        [python, canary_dir() / name / "program.py", *arguments],
        capture_output=True,
        env={**os.environ, "LD_LIBRARY_PATH": str(libraries or ""), **(environment or {})},
        check=False,
        timeout=300,
    )
    assert done.returncode == status, done.stderr.decode()
    return done.stdout


def failed(report: Report) -> dict[str, str]:
    """Checks that do not hold, with their messages."""
    return {check.name: check.message for check in report.checks if not check.ok}


def keeps_to_its_manifest(name: str, report: Report) -> None:
    """Everything that ``workload.toml`` promises was reported, in enough repetitions."""
    workload = read_workload(canary_dir() / name)
    assert report.problems == ()
    assert report.env is not None
    assert {check.name for check in report.checks} == set(workload.checks)
    assert {metric.name for metric in report.metrics} == set(workload.metrics)
    for metric in report.metrics:
        assert all(value > 0 for value in metric.values), metric.name


def compile_library(source: Path, target: Path, **settings: int) -> None:
    """Build a stand-in with gcc; without it the test is skipped, in CI it fails."""
    if shutil.which("gcc") is None:
        absent("gcc is not installed")
    flags = [f"-D{key}={value}" for key, value in settings.items()]
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-O1", "-w", *flags, "-o", target, source], check=True
    )


def absent(reason: str) -> None:
    """Skip on a laptop, fail in CI."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def torch_python() -> str:
    """An interpreter that has PyTorch; without one the test is skipped, in CI as well."""
    if named := os.environ.get(TORCH):
        return named
    if INSTALLED_TORCH.exists():
        return str(INSTALLED_TORCH)
    if importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed (`make torch` does that)")
    return sys.executable
