"""``compatgate health`` on this machine: with and without a readable log, with and without GPUs."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from compatgate.canary.health import Gpu, Snapshot, kernel_log
from compatgate.cli import health as module
from compatgate.cli.main import main
from compatgate.discovery.machine import Root
from compatgate.errors import Unavailable

snapshot = import_module("compatgate.canary.health.snapshot")


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine with a quiet kernel log and no GPU; the file is its log."""
    log = tmp_path / "kmsg"
    log.write_text("6,1,1,-;Linux version 6.1\n")
    real = kernel_log.read_kernel_log
    monkeypatch.setattr(kernel_log, "read_kernel_log", lambda *a: real(*a, kmsg=str(log)))
    monkeypatch.setattr(snapshot, "snapshot", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    absence = partial(kernel_log.explain_absence, root=Root(str(tmp_path)))
    monkeypatch.setattr(kernel_log, "explain_absence", absence)
    monkeypatch.setattr(module, "read_kernel_driver", lambda: None)
    return log


def gpus(monkeypatch: pytest.MonkeyPatch, **values: Any) -> None:
    taken = Snapshot(datetime(2026, 11, 21, tzinfo=UTC), "550.54.15", (Gpu(0, **values),))
    monkeypatch.setattr(snapshot, "snapshot", lambda: taken)


def no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise Unavailable("the log cannot be read (permission denied)", hint="run it as root")

    monkeypatch.setattr(kernel_log, "read_kernel_log", refuse)


def smi(machine: Path, body: str) -> None:
    program = machine.parent / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)


def test_a_machine_without_gpu_and_driver_is_no_clean_bill(
    machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["health", "--format", "json"]) == 3
    streams = capsys.readouterr()
    document = json.loads(streams.out)
    assert document["events"] == document["gpus"] == []
    assert "no driver" in document["problem"]
    assert "run this on the GPU node" in streams.err
    assert main(["health"]) == 3
    assert "no GPU error" not in capsys.readouterr().out


def test_a_driver_without_nvml_lets_the_log_decide(
    machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    version = machine.parent / "proc/driver/nvidia/version"
    version.parent.mkdir(parents=True)
    version.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5\n")
    assert main(["health"]) == 0
    assert "no GPU error" in capsys.readouterr().out


def test_a_gpu_that_nouveau_has_is_named(machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    device = machine.parent / "sys/bus/pci/devices/0000:01:00.0"
    (machine.parent / "sys/bus/pci/drivers/nouveau").mkdir(parents=True)
    device.mkdir(parents=True)
    (device / "vendor").write_text("0x10de\n")
    (device / "class").write_text("0x030000\n")
    (device / "driver").symlink_to(machine.parent / "sys/bus/pci/drivers/nouveau")
    assert main(["health"]) == 3
    assert "0000:01:00.0: nouveau" in capsys.readouterr().err


def test_what_nvidia_smi_fails_with_is_a_cause(
    machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    smi(machine, 'echo "Failed to initialize NVML: Driver/library version mismatch"; exit 18')
    assert main(["health", "--format", "json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert [event["kind"] for event in document["events"]] == ["driver-library-mismatch"]
    assert document["health"]["state"] == "sick"
    smi(machine, 'echo "something new"; exit 9')
    assert main(["health"]) == 3
    assert "something new" in capsys.readouterr().err


def test_a_wrong_module_is_never_answered_with_a_reset(
    machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    started = "4,3,3,-;NVRM: GPU 0000:02:00.0: RmInitAdapter failed! (0x22:0x56:884)\n"
    machine.write_text(
        "4,2,2,-;NVRM: The NVIDIA GPU 0000:02:00.0 (PCI ID: 10de:2c58)\n"
        "4,2,2,-;NVRM: installed in this system requires use of the NVIDIA open kernel modules.\n"
        + started
    )
    assert main(["health"]) == 1
    out = capsys.readouterr().out
    assert "open-module-needed" in out
    assert "reset" not in out.lower()
    machine.write_text(started)  # the reason was overwritten
    assert main(["health"]) == 1
    out = capsys.readouterr().out
    assert "CHECK_DRIVER_START" in out
    assert "module flavour" in " ".join(out.split())
    assert "gpu-reset" not in out


def test_an_error_in_the_log_is_fatal(machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machine.write_text("4,2,2,-;NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus.\n")
    assert main(["health", "--format", "json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["events"][0]["device"] == "0000:9b:00"
    assert document["health"]["state"] == "sick"


def test_a_sick_gpu_is_found_without_any_error_in_the_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gpus(monkeypatch, pci="0000:9b:00", remap_failed=True)
    assert main(["health"]) == 1
    out = capsys.readouterr().out
    assert "sick" in out
    assert "RMA" in out


def test_a_log_that_may_not_be_read_is_no_clean_bill(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    no_log(monkeypatch)
    assert main(["health"]) == 3
    assert "run it as root" in capsys.readouterr().err
    gpus(monkeypatch, pci="0000:9b:00")
    assert main(["health", "--format", "json"]) == 3
    streams = capsys.readouterr()
    assert "permission denied" in streams.err
    assert json.loads(streams.out)["health"]["state"] == "healthy"
    gpus(monkeypatch, pci="0000:9b:00", lost=True)
    assert main(["health"]) == 1
