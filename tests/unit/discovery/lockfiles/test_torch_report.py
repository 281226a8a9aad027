"""The report of ``torch.utils.collect_env`` says which packages were installed."""

from __future__ import annotations

from known_packages import PACKAGES

from compatgate.discovery.lockfiles.platform import Platform
from compatgate.discovery.lockfiles.read import read_lockfile

REPORT = """Collecting environment information...
PyTorch version: 2.4.1+cu121
Is debug build: False
CUDA used to build PyTorch: 12.1

Versions of relevant libraries:
[pip3] numpy==1.26.4
[pip3] nvidia-nccl-cu12==2.20.5
[pip3] torch==2.4.1
[pip3] triton==3.0.0
[conda] Could not collect
"""
CONDA = """PyTorch version: 2.3.0
CUDA used to build PyTorch: 12.1

[pip3] numpy==1.26.4
[conda] pytorch                   2.3.0           py3.10_cuda12.1_cudnn8.9.2_0    pytorch
[conda] pytorch-cuda              12.1                 ha16c6d3_5    pytorch
[conda] triton                    2.3.0                    pypi_0    pypi
"""


def found(text: str) -> tuple[str, dict[str, str]]:
    reading = read_lockfile("env.txt", text.encode(), platform=Platform(), known=PACKAGES)
    return reading.format, {one.component: one.version for one in reading.observations}


def test_the_version_that_pytorch_printed_has_its_build() -> None:
    form, components = found(REPORT)
    assert form == "collect_env"
    assert components["torch"] == "2.4.1+cu121"
    assert components["nccl"].startswith("2.20.5")


def test_packages_of_conda_are_read_as_such() -> None:
    form, components = found(CONDA)
    assert form == "collect_env"
    assert components["torch"].startswith("2.3.0")


def test_pins_alone_are_no_report() -> None:
    assert found("torch==2.4.1\ntriton==3.0.0\n")[0] == "requirements.txt"
