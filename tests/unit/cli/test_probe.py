"""``compatgate probe`` on machines with and without GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from compatgate.cli.main import main
from compatgate.discovery import probe as module
from compatgate.discovery.driver import KernelDriver
from compatgate.discovery.nvidia_smi import Report, parse_nvidia_smi

FOLDER = Path(__file__).parents[2] / "fixtures" / "nvidia_smi"


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "read_nvml", lambda: None)
    monkeypatch.setattr(module, "read_kernel_driver", lambda: None)
    monkeypatch.setattr(module, "find_libraries", list)
    monkeypatch.setattr(module, "_PATHS", ("nvidia-smi-that-does-not-exist",))


@pytest.fixture
def gpu_host(monkeypatch: pytest.MonkeyPatch) -> Report:
    report = parse_nvidia_smi((FOLDER / "table-r535-forward-compat.txt").read_text())
    kernel = KernelDriver("535.161.08", True, "/proc/driver/nvidia/version")
    monkeypatch.setattr(module, "read_nvml", lambda: report)
    monkeypatch.setattr(module, "read_kernel_driver", lambda: kernel)
    return report


def test_a_machine_without_gpu_is_told_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe"]) == 0
    out = capsys.readouterr().out
    assert "no NVIDIA driver is loaded" in out
    assert "no NVIDIA GPU was found" in out
    assert "nvidia-smi is not installed" in out


def test_a_host_is_shown_with_what_disagrees(
    gpu_host: Report, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["probe"]) == 0
    out = capsys.readouterr().out
    assert "driver  535.161.08 (open kernel modules)" in out
    assert "1 x NVIDIA H100 80GB HBM3" in out
    assert "witnesses disagree" in out


def test_what_probe_writes_check_reads(
    gpu_host: Report, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "node.json")
    assert main(["probe", "-o", path]) == 0
    assert main(["check", "--probe", path, "--stack", "cuda=12.2,arch=sm_90"]) == 0
    output = capsys.readouterr()
    assert "H100-SXM5-80GB, driver 535.161.08" in output.out
    assert "the driver version decides" in output.err


def test_json_is_the_document(gpu_host: Report, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["compatgate"] == "probe/v1"
    assert set(document) == {"compatgate", "pools", "stack", "observations", "conflicts", "host"}


def test_a_file_that_cannot_be_written_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", "-o", "/nowhere/node.json"]) == 2
    assert "cannot write '/nowhere/node.json'" in capsys.readouterr().err


def test_an_interpreter_that_cannot_be_asked_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", "--python", "/nowhere/python"]) == 2
    assert "there is no such interpreter" in capsys.readouterr().err
