"""``compatgate probe`` on machines with and without GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from compatgate.cli.main import main
from compatgate.discovery import machine as observe
from compatgate.discovery import probe as module
from compatgate.discovery.driver import KernelDriver
from compatgate.discovery.nvidia_smi import parse_nvidia_smi
from compatgate.discovery.nvidia_smi.report import Report

FOLDER = Path(__file__).parents[2] / "fixtures" / "nvidia_smi"


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "read_nvml", lambda: None)
    monkeypatch.setattr(module, "read_kernel_driver", lambda: None)
    monkeypatch.setattr(module, "find_libraries", list)
    monkeypatch.setattr(module, "_PATHS", ("nvidia-smi-that-does-not-exist",))


@pytest.fixture
def gpu_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Report:
    report = parse_nvidia_smi((FOLDER / "table-r535-forward-compat.txt").read_text())
    kernel = KernelDriver("535.161.08", True, "/proc/driver/nvidia/version")
    monkeypatch.setattr(module, "read_nvml", lambda: report)
    monkeypatch.setattr(module, "read_kernel_driver", lambda: kernel)
    running = tmp_path / "osrelease"  # this machine's may be newer than the driver
    running.write_text("5.15.0-100-generic\n")
    monkeypatch.setattr(observe, "OS_KERNEL", str(running))
    monkeypatch.setattr(observe, "OS_RELEASE", ())
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
    assert "sources disagree" in out


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
    assert "cannot write /nowhere/node.json" in capsys.readouterr().err


def test_an_interpreter_that_cannot_be_asked_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", "--python", "/nowhere/python"]) == 2
    assert "was not found" in capsys.readouterr().err


def test_printed_output_gives_the_same_document(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "node.json")
    printed = str(FOLDER / "table-r550-a100-mixed-mig.txt")
    assert main(["probe", "--nvidia-smi", printed, "-o", path]) == 0
    shown = capsys.readouterr().out
    assert "driver  550.163.01" in shown
    assert "GPU     1 x NVIDIA A100-SXM4-40GB" in shown
    document = json.loads(Path(path).read_text())
    assert document["compatgate"] == "probe/v1"
    stated = ["--stack", "cuda=12.4,arch=sm_80"]
    assert main(["check", "--probe", path, *stated, "--format", "json"]) == 0
    from_probe = json.loads(capsys.readouterr().out)
    assert main(["check", "--nvidia-smi", printed, *stated, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["id"] == from_probe["id"]


@pytest.mark.parametrize("name", ["gfd-a100.yaml", "gfd-mixed-mig.txt"])
def test_labels_of_nodes_give_the_same_document(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, labels = str(tmp_path / "nodes.json"), str(FOLDER.parent / "node_labels" / name)
    assert main(["probe", "--node-labels", labels, "-o", path]) == 0
    assert "nodes   1 x NVIDIA-A100-SXM4" in capsys.readouterr().out
    stated = ["--stack", "cuda=12.2,arch=sm_80", "--format", "json"]
    assert main(["check", "--probe", path, *stated]) == 0
    from_probe = json.loads(capsys.readouterr().out)
    assert main(["check", "--node-labels", labels, *stated]) == 0
    assert json.loads(capsys.readouterr().out) | {"decided_at": 0} == from_probe | {"decided_at": 0}


def test_the_worst_pool_of_a_cluster_decides(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "nodes.yaml"
    text = (FOLDER.parent / "node_labels" / "gfd-a100.yaml").read_text()
    old = text.replace("550.54.15", "450.248.02").replace('runtime-version.minor: "4"', "x: y")
    path.write_text(f"{text}---\n{old}")
    question = ["--stack", "cuda=12.4,arch=sm_80"]
    assert main(["check", "--node-labels", str(path), *question]) == 1
    assert "450.248.02" in capsys.readouterr().out


def test_two_sources_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", "--pid", "1", "--python", "x"]) == 2
    assert "not allowed with" in capsys.readouterr().err
    files = ["--nvidia-smi", "a", "--node-labels", "b"]
    assert main(["check", *files, "--stack", "cuda=12.4"]) == 2
    assert "cannot be used together" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--nvidia-smi", "--node-labels"])
@pytest.mark.parametrize("content", ["", "nonsense", "{"])
def test_what_is_neither_is_bad_input(
    option: str, content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "file"
    path.write_text(content)
    assert main(["probe", option, str(path)]) == 2
    assert str(path) in capsys.readouterr().err
    assert main(["probe", option, str(tmp_path / "missing")]) == 2
