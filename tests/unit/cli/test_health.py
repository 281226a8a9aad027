"""``compatgate health`` on this machine: with and without a readable log, with and without GPUs."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import compatgate.canary.health as package
from compatgate.canary.health import Gpu, Snapshot, kernel_log
from compatgate.cli import health as module
from compatgate.cli.main import main
from compatgate.errors import Unavailable


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine with a quiet kernel log and no GPU; the file is its log."""
    log = tmp_path / "kmsg"
    log.write_text("6,1,1,-;Linux version 6.1\n")
    real = kernel_log.read_kernel_log
    monkeypatch.setattr(kernel_log, "read_kernel_log", lambda *a: real(*a, kmsg=str(log)))
    monkeypatch.setattr(package, "snapshot", lambda: None)
    monkeypatch.setattr(module, "_loaded_driver", lambda: None)
    return log


def gpus(monkeypatch: pytest.MonkeyPatch, **values: Any) -> None:
    taken = Snapshot(datetime(2026, 11, 21, tzinfo=UTC), "550.54.15", (Gpu(0, **values),))
    monkeypatch.setattr(package, "snapshot", lambda: taken)


def no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise Unavailable("the log cannot be read (permission denied)", hint="run it as root")

    monkeypatch.setattr(kernel_log, "read_kernel_log", refuse)


def test_a_quiet_machine_without_gpu_is_told_both(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["health"]) == 0
    out = capsys.readouterr().out
    assert "no GPU error" in out
    assert "NVML found no GPU" in out


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
