"""The probe document: written on a host, read anywhere."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from compatgate.catalog import load_facts
from compatgate.core.facts import Facts
from compatgate.discovery import probe as module
from compatgate.discovery.driver import KernelDriver
from compatgate.discovery.findings import Inspection
from compatgate.discovery.nvidia_smi import parse_nvidia_smi
from compatgate.discovery.nvidia_smi.report import Report
from compatgate.discovery.observations import Conflict, Observation
from compatgate.discovery.probe import Probe, probe_machine, read_probe
from compatgate.errors import BadInput

FOLDER = Path(__file__).parents[2] / "fixtures" / "nvidia_smi"


@pytest.fixture(scope="module")
def facts() -> Facts:
    return load_facts([])


def look(
    monkeypatch: pytest.MonkeyPatch,
    facts: Facts,
    report: Report | None,
    kernel: KernelDriver | None = None,
    libraries: tuple[Observation, ...] = (),
    root: str = "/nonexistent",
) -> Probe:
    monkeypatch.setattr(module, "read_nvml", lambda: report)
    monkeypatch.setattr(module, "read_kernel_driver", lambda: kernel)
    monkeypatch.setattr(module, "find_libraries", lambda: list(libraries))
    monkeypatch.setattr(module, "_PATHS", ("nvidia-smi-that-does-not-exist",))
    return probe_machine(facts, root=root)


def test_a_machine_without_gpu_says_so(monkeypatch: pytest.MonkeyPatch, facts: Facts) -> None:
    document = look(monkeypatch, facts, None).to_json()
    assert document["pools"] == []
    assert document["stack"] == {}
    assert document["host"]["driver"] is None
    assert document["host"]["notes"] == ["nvidia-smi is not installed"]


def test_an_inspection_is_read_as_a_probe_without_pools() -> None:
    conflict = Conflict("cudnn", "two witnesses disagree", "9.1.0")
    found = Inspection({"torch": "2.4.1+cu124"}, (), (conflict,), ("a layer could not be read",))
    document = read_probe(msgspec.json.encode(found.to_json()).decode())
    assert document["pools"] == []
    assert document["stack"] == {
        "torch": "2.4.1+cu124",
        "open": ["a layer could not be read"],
        "conflicts": ["two witnesses disagree"],
    }
    damaged = {**found.to_json(), "stack": []}
    with pytest.raises(BadInput, match="is not an inspection"):
        read_probe(msgspec.json.encode(damaged).decode())


def test_a_host_becomes_a_document_that_is_read_back(
    monkeypatch: pytest.MonkeyPatch, facts: Facts
) -> None:
    report = parse_nvidia_smi((FOLDER / "table-r550-a100-mixed-mig.txt").read_text())
    kernel = KernelDriver("550.163.01", True, "/proc/driver/nvidia/version")
    library = Observation("cudnn", "9.1.0", "/usr/lib/libcudnn.so.9.1.0", "metadata")
    written = look(monkeypatch, facts, report, kernel, (library,)).to_json()

    document = read_probe(msgspec.json.encode(written).decode())

    assert document == written
    assert [pool["driver"] for pool in document["pools"]] == ["550.163.01"] * 3
    assert document["pools"][1]["gpu"] == "NVIDIA A100-SXM4-40GB MIG 1g.5gb"
    assert document["stack"] == {"cudnn": "9.1.0"}
    assert document["host"]["kernel_modules"] == "open"
    assert document["conflicts"] == []


def test_the_loaded_driver_decides_over_what_nvidia_smi_prints(
    monkeypatch: pytest.MonkeyPatch, facts: Facts
) -> None:
    report = parse_nvidia_smi((FOLDER / "table-r535-forward-compat.txt").read_text())
    kernel = KernelDriver("535.104.05", False, "/proc/driver/nvidia/version")
    found = look(monkeypatch, facts, report, kernel)
    assert found.pools[0].driver == "535.104.05"
    assert [conflict.component for conflict in found.conflicts] == ["driver", "driver-cuda"]
    assert "the driver version decides" in found.conflicts[1].message


def test_the_node_below_the_gpus_is_in_each_pool(
    monkeypatch: pytest.MonkeyPatch, facts: Facts, tmp_path: Path
) -> None:
    for name, content in {
        "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  "
        "550.163.01  Release Build\n",
        "proc/sys/kernel/osrelease": "6.8.0-45-generic\n",
        "sys/class/dmi/id/product_name": "p4d.24xlarge\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    report = parse_nvidia_smi((FOLDER / "table-r550-a100-mixed-mig.txt").read_text())
    document = look(monkeypatch, facts, report, root=str(tmp_path)).to_json()
    node = {"kernel-modules": "open", "kernel": "6.8.0-45-generic", "persistence": "off"}
    assert [pool["node"] for pool in document["pools"]] == [node] * 3
    assert {pool["platform"] for pool in document["pools"]} == {"aws/p4d"}
    assert document["host"]["node"] == node
    assert document["host"]["platform"] == "aws/p4d"
    seen = {(one["component"], one["version"]) for one in document["observations"]}
    assert {("kernel-modules", "open"), ("kernel", "6.8.0-45-generic")} <= seen
    assert document["stack"] == {}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty"),
        ("{", "is not JSON"),
        ("[]", "is not a probe document"),
        ('{"compatgate": "probe/v2"}', "is not a probe document"),
        ('{"compatgate": "probe/v1", "pools": {}, "stack": {}}', "must be a list of pools"),
        ('{"compatgate": "probe/v1", "pools": [1], "stack": {}}', "must be a list of pools"),
        ('{"compatgate": "probe/v1", "pools": [], "stack": []}', "must be an object"),
    ],
)
def test_what_is_no_probe_document_is_refused(text: str, problem: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_probe(text, origin="node.json")
    assert problem in caught.value.problem
    assert (caught.value.field or "").startswith("node.json")
