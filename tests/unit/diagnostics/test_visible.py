"""Which GPUs the variables leave to a process."""

from __future__ import annotations

import pytest

from compatgate.diagnostics.document import visible_devices
from compatgate.discovery.nvidia_smi.report import Device, Slice

A, B, C = (Device("NVIDIA L4", bus=str(n), uuid=f"GPU-{c * 8}-0") for n, c in enumerate("abc"))
MIG = Device(
    "NVIDIA A100-SXM4-80GB",
    uuid="GPU-dddddddd-0",
    mig=True,
    slices=(Slice("1g.10gb", uuid="MIG-1111"), Slice("3g.40gb", uuid="MIG-2222")),
)
THREE = (A, B, C)


def left(*devices: Device, container: bool = False, **environment: str) -> tuple[Device, ...]:
    return visible_devices(devices, environment, [], container=container)


def notes(*devices: Device, **environment: str) -> str:
    found: list[str] = []
    visible_devices(devices, environment, found)
    return " ".join(found)


def test_without_variables_all_are_visible() -> None:
    assert left(*THREE) == THREE


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("1", (B,)),
        ("2,0", (C, A)),
        ("GPU-bbbb", (B,)),
        ("GPU-cccccccc-0,0", (C, A)),
        ("", ()),
        ("-1", ()),
        ("NoDevFiles", ()),
        ("0,-1,1", (A,)),
        ("0, 1", (A, B)),
    ],
)
def test_cuda_takes_what_is_named_in_that_order(value: str, wanted: tuple[Device, ...]) -> None:
    assert left(*THREE, CUDA_VISIBLE_DEVICES=value) == wanted
    assert not notes(*THREE, CUDA_VISIBLE_DEVICES=value)


@pytest.mark.parametrize(
    ("value", "wanted"),
    [("0,7,1", (A,)), ("x", ()), ("GPU-", ()), ("0,0", (A,)), ("all", ()), ("²", ())],
)
def test_what_names_no_gpu_hides_the_rest_and_is_noted(
    value: str, wanted: tuple[Device, ...]
) -> None:
    assert left(*THREE, CUDA_VISIBLE_DEVICES=value) == wanted
    assert "CUDA ignores it and all later entries" in notes(*THREE, CUDA_VISIBLE_DEVICES=value)


def test_an_index_among_unlike_gpus_is_certain_only_in_pci_order() -> None:
    assert left(A, MIG, CUDA_VISIBLE_DEVICES="1") == (A, MIG)
    assert "CUDA_DEVICE_ORDER" in notes(A, MIG, CUDA_VISIBLE_DEVICES="1")
    order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "1"}
    assert left(A, MIG, **order) == (MIG,)
    assert left(A, MIG, CUDA_VISIBLE_DEVICES="GPU-aaaa") == (A,)


def test_a_mig_device_is_its_gpu_with_that_slice() -> None:
    (device,) = left(MIG, CUDA_VISIBLE_DEVICES="MIG-2222")
    assert [part.profile for part in device.slices] == ["3g.40gb"]


@pytest.mark.parametrize(
    ("value", "wanted"),
    [("all", THREE), ("none", ()), ("void", ()), ("", ()), ("0,2", (A, C)), ("GPU-bbbb", (B,))],
)
def test_the_container_runtime_lets_in_what_is_named(
    value: str, wanted: tuple[Device, ...]
) -> None:
    assert left(*THREE, container=True, NVIDIA_VISIBLE_DEVICES=value) == wanted


def test_cuda_chooses_among_what_the_runtime_let_in() -> None:
    environment = {"NVIDIA_VISIBLE_DEVICES": "1,2", "CUDA_VISIBLE_DEVICES": "0"}
    assert left(*THREE, container=True, **environment) == (B,)


def test_outside_of_containers_the_runtimes_variable_says_nothing() -> None:
    assert left(*THREE, NVIDIA_VISIBLE_DEVICES="none") == THREE


def test_the_runtime_names_mig_devices_by_two_numbers() -> None:
    (device,) = left(A, MIG, container=True, NVIDIA_VISIBLE_DEVICES="1:0")
    assert [part.profile for part in device.slices] == ["1g.10gb"]
    assert left(A, MIG, container=True, NVIDIA_VISIBLE_DEVICES="1:9,0:0") == ()
