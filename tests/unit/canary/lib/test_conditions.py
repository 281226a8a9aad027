"""A program runs next to its GPU, and says under which conditions, or why it cannot."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

Load = Callable[[str], ModuleType]
GPU = {"name": "NVIDIA H200", "pci": "00000000:9b:00.0"}


@pytest.fixture
def conditions(shared: Load, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    found = shared("canary_conditions")
    bound: list[set[int]] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: bound[-1] if bound else {0, 1, 2, 3})
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cpus: bound.append(cpus))
    found.bound = bound
    return found


def _sysfs(tmp_path: Path, cpus: str, node: str) -> str:
    folder = tmp_path / "0000:9b:00.0"
    folder.mkdir()
    (folder / "local_cpulist").write_text(f"{cpus}\n")
    (folder / "numa_node").write_text(f"{node}\n")
    return str(tmp_path)


def test_a_process_is_bound_to_the_allowed_cpus_of_its_gpu(
    conditions: ModuleType, tmp_path: Path
) -> None:
    said = conditions.bind([GPU], _sysfs(tmp_path, "2-5,8", "1"))
    assert said == {"fixed": True, "cpus": 2, "of": 4, "numa": 1}
    assert conditions.bound == [{2, 3}]


def test_why_nothing_was_bound_is_said(conditions: ModuleType, tmp_path: Path) -> None:
    assert conditions.bind([]) == {"fixed": False, "why": "no GPU"}
    assert conditions.bind([GPU, GPU])["why"] == "2 GPUs"
    assert "not known" in conditions.bind([GPU], str(tmp_path))["why"]
    said = conditions.bind([GPU], _sysfs(tmp_path, "64-95", "1"))
    assert said == {"fixed": False, "why": "none of the GPU's CPUs is allowed here", "numa": 1}
    assert conditions.bound == []


def test_without_nvml_nothing_is_recorded_and_the_reason_is_said(
    conditions: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert conditions.watch([]) == "not recorded: no GPU"

    class Absent:
        def __enter__(self) -> None:
            raise conditions.NoNvml("no NVIDIA driver here")

    monkeypatch.setattr(conditions, "Nvml", Absent)
    assert conditions.watch([GPU]) == "not recorded: no NVIDIA driver here"
    assert conditions.read() is None
    assert conditions.columns([None, None]) == {}
