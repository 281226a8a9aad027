"""nvidia-smi's table cuts long names off; the memory that it prints completes them."""

from __future__ import annotations

import pytest

from compatgate.core.facts import Facts
from compatgate.discovery.nvidia_smi.report import Device, identify_product


@pytest.mark.parametrize(
    ("name", "memory", "product"),
    [
        ("NVIDIA GeForce RTX 3060 ...", 8192, "GeForce-RTX-3060-Ti"),
        ("NVIDIA GeForce RTX 3060 ...", 6144, "GeForce-RTX-3060-Laptop-GPU"),
        ("NVIDIA GeForce RTX 3060 ...", None, "sm_86"),
        ("NVIDIA GeForce RTX 4060 ...", 8188, "sm_89"),
    ],
)
def test_memory_completes_a_name(name: str, memory: int | None, product: str, facts: Facts) -> None:
    assert identify_product(Device(name, memory_mib=memory), facts.gpus)[0] == product
