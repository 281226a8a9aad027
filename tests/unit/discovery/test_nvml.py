"""GPUs through NVML, with a library that answers as NVML would."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from compatgate.discovery.driver import read_nvml
from compatgate.discovery.nvidia_smi.report import Slice


class FakeNvml:
    """One A100 in MIG mode with two slices."""

    class NVMLError(Exception):
        """As pynvml's."""

    def __init__(self, *, driver: bool = True, count: int = 1) -> None:
        self.driver, self.count, self.closed = driver, count, False

    def nvmlInit(self) -> None:  # noqa: N802
        if not self.driver:
            raise self.NVMLError

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.closed = True

    def nvmlDeviceGetMigDeviceHandleByIndex(self, _: str, index: int) -> str:  # noqa: N802
        if index > 1:
            raise self.NVMLError
        return f"slice{index}"

    def __getattr__(self, name: str) -> Any:
        memory = {"gpu0": 80 * 1024**3, "slice0": 9728 * 2**20, "slice1": 9728 * 2**20}
        names = {
            "gpu0": b"NVIDIA A100-SXM4-80GB",
            "slice0": "NVIDIA A100-SXM4-80GB MIG 1g.10gb",
            "slice1": "NVIDIA A100-SXM4-80GB MIG 1g.10gb",
        }
        answers = {
            "nvmlDeviceGetCount": lambda: self.count,
            "nvmlDeviceGetHandleByIndex": lambda i: f"gpu{i}",
            "nvmlSystemGetDriverVersion": lambda: "535.104.05",
            "nvmlSystemGetCudaDriverVersion_v2": lambda: 12020,
            "nvmlDeviceGetName": lambda h: names[h],
            "nvmlDeviceGetMemoryInfo": lambda h: SimpleNamespace(total=memory[h]),
            "nvmlDeviceGetCudaComputeCapability": lambda h: (8, 0),
            "nvmlDeviceGetMigMode": lambda h: (1, 1),
            "nvmlDeviceGetPciInfo": lambda h: SimpleNamespace(busId=b"00000000:01:00.0"),
            "nvmlDeviceGetMaxMigDeviceCount": lambda h: 7,
            "nvmlDeviceGetPersistenceMode": lambda h: 1,
            "nvmlDeviceGetGspFirmwareMode": lambda h: [0, 1],
            "nvmlDeviceGetVbiosVersion": lambda h: b"92.00.36.00.02",
            "nvmlDeviceGetUUID": lambda h: f"{'MIG' if h.startswith('slice') else 'GPU'}-{h}",
        }
        return answers[name]


def test_devices_and_their_slices_are_reported() -> None:
    nvml = FakeNvml()
    report = read_nvml(nvml)
    assert report is not None
    assert (report.driver, report.cuda) == ("535.104.05", "12.2")
    device = report.devices[0]
    assert (device.name, device.capability, device.mig) == ("NVIDIA A100-SXM4-80GB", "8.0", True)
    assert device.uuid == "GPU-gpu0"
    parts = (Slice("1g.10gb", 9728, uuid=f"MIG-slice{n}") for n in (0, 1))
    assert device.slices == tuple(parts)
    assert device.node == {"gsp-firmware": "off", "vbios": "92.00.36.00.02", "persistence": "on"}
    assert nvml.closed


def test_without_a_driver_there_is_no_report() -> None:
    assert read_nvml(FakeNvml(driver=False)) is None


def test_without_a_gpu_there_is_no_report() -> None:
    assert read_nvml(FakeNvml(count=0)) is None
