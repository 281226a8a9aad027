"""Snapshots through NVML, with a library that answers as NVML would."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import msgspec

from compatgate.canary.health import snapshot
from compatgate.canary.health.snapshot import Process, decode_throttle_reasons


class NVMLError(Exception):
    """As pynvml's, with the number of the error."""

    def __init__(self, value: int = 3) -> None:
        super().__init__(value)
        self.value = value


class FakeNvml:
    """A GPU that answers what it is given; anything else is not supported."""

    NVMLError = NVMLError
    NVML_ERROR_GPU_IS_LOST = 15
    NVML_FI_DEV_GET_GPU_RECOVERY_ACTION = 230

    def __init__(self, answers: dict[str, Any] | None = None, *, driver: bool = True) -> None:
        self.answers, self.driver, self.closed = answers or {}, driver, False

    def nvmlInit(self) -> None:  # noqa: N802
        if not self.driver:
            raise NVMLError(9)

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.closed = True

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:  # noqa: N802
        return f"gpu{index}"

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            raise AttributeError(name)

        def answer(*arguments: Any) -> Any:
            value = self.answers.get(name, NVMLError(3))
            if isinstance(value, Exception):
                raise value
            return value(*arguments[1:]) if callable(value) else value

        return answer


FULL = {
    "nvmlSystemGetDriverVersion": "550.54.15",
    "nvmlDeviceGetUUID": b"GPU-c43f0536-e751-7211-d7a7-78c95249ee7d",
    "nvmlDeviceGetName": "NVIDIA H100 80GB HBM3",
    "nvmlDeviceGetPciInfo": SimpleNamespace(busId=b"00000000:9B:00.0"),
    "nvmlDeviceGetMigMode": (0, 0),
    "nvmlDeviceGetPersistenceMode": 1,
    "nvmlDeviceGetTotalEccErrors": lambda kind, counter: 10 * kind + counter,
    "nvmlDeviceGetRetiredPages": [1, 2],
    "nvmlDeviceGetRetiredPagesPendingStatus": 0,
    "nvmlDeviceGetRemappedRows": (1, 2, 1, 0),
    "nvmlDeviceGetCurrentClocksEventReasons": 0x44,
    "nvmlDeviceGetClockInfo": lambda kind: {1: 1980, 2: 2619}[kind],
    "nvmlDeviceGetTemperature": 41,
    "nvmlDeviceGetPowerUsage": 123_456,
    "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=98, memory=40),
    "nvmlDeviceGetComputeRunningProcesses": [
        SimpleNamespace(pid=9, usedGpuMemory=1024),
        SimpleNamespace(pid=7, usedGpuMemory=None),
        SimpleNamespace(pid=9, usedGpuMemory=1024),
    ],
    "nvmlDeviceGetFieldValues": [SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal=1))],
}


def test_everything_that_a_gpu_tells_is_kept() -> None:
    nvml = FakeNvml(FULL)
    taken = snapshot(nvml)
    assert taken is not None
    assert taken.driver == "550.54.15"
    (gpu,) = taken.gpus
    assert (gpu.pci, gpu.name, gpu.mig, gpu.persistence) == (
        "0000:9b:00",
        "NVIDIA H100 80GB HBM3",
        False,
        True,
    )
    assert (gpu.ecc_corrected_volatile, gpu.ecc_corrected_aggregate) == (0, 1)
    assert (gpu.ecc_uncorrected_volatile, gpu.ecc_uncorrected_aggregate) == (10, 11)
    assert (gpu.retired_pages, gpu.remapped_uncorrected) == (2, 2)
    assert (gpu.remap_pending, gpu.remap_failed, gpu.retirement_pending) == (True, False, False)
    assert gpu.throttle == ("sw_power_cap", "hw_thermal_slowdown")
    assert (gpu.sm_clock_mhz, gpu.memory_clock_mhz) == (1980, 2619)
    assert (gpu.temperature_c, gpu.power_w, gpu.utilisation) == (41, 123.456, 98)
    assert gpu.processes == (Process(7), Process(9, 1024))
    assert gpu.recovery == "gpu_reset"
    assert nvml.closed
    assert msgspec.json.decode(msgspec.json.encode(taken), type=type(taken)) == taken


def test_what_a_gpu_does_not_support_is_none_and_no_error() -> None:
    taken = snapshot(FakeNvml())
    assert taken is not None
    (gpu,) = taken.gpus
    plain = msgspec.to_builtins(gpu)
    assert {value for name, value in plain.items() if name not in ("index", "lost")} == {None}
    assert gpu.lost is False


def test_the_older_name_of_the_throttle_reasons_will_do() -> None:
    taken = snapshot(FakeNvml({"nvmlDeviceGetCurrentClocksThrottleReasons": 0x8}))
    assert taken is not None
    assert taken.gpus[0].throttle == ("hw_slowdown",)


class SramStatus(ctypes.Structure):
    _fields_ = (("bThresholdExceeded", ctypes.c_uint),)


class FabricInfo(ctypes.Structure):
    _fields_ = (("state", ctypes.c_ubyte),)


def test_structures_that_nvml_fills_are_read() -> None:
    def fill(name: str, value: int) -> Any:
        def answer(pointer: Any) -> int:
            setattr(pointer._obj, name, value)
            return 0

        return answer

    class Newer(FakeNvml):
        c_nvmlEccSramErrorStatus_v1_t = SramStatus  # noqa: N815 - NVML's names
        c_nvmlGpuFabricInfo_t = FabricInfo  # noqa: N815

    answers = {
        "nvmlDeviceGetSramEccErrorStatus": fill("bThresholdExceeded", 1),
        "nvmlDeviceGetGpuFabricInfo": fill("state", 2),
        "nvmlDeviceGetMaxClockInfo": 1980,
        "nvmlDeviceGetGspFirmwareVersion": "550.54.15",
        "nvmlSystemGetCudaDriverVersion_v2": 12040,
    }
    taken, unsupported = snapshot(Newer(answers)), snapshot(Newer())
    assert taken is not None
    assert unsupported is not None
    (gpu,) = taken.gpus
    assert (gpu.sram_threshold_exceeded, gpu.fabric) == (True, "in_progress")
    assert (gpu.sm_clock_max_mhz, gpu.gsp, taken.cuda) == (1980, "550.54.15", "12.4")
    (other,) = unsupported.gpus
    assert (other.sram_threshold_exceeded, other.fabric, unsupported.cuda) == (None, None, None)


def test_a_gpu_that_is_lost_is_said_to_be() -> None:
    taken = snapshot(FakeNvml({"nvmlDeviceGetTemperature": NVMLError(15)}))
    assert taken is not None
    assert taken.gpus[0].lost is True


def test_without_a_driver_or_the_library_there_is_no_snapshot() -> None:
    assert snapshot(FakeNvml(driver=False)) is None


def test_bits_without_a_name_are_shown() -> None:
    assert decode_throttle_reasons(0) == ()
    assert decode_throttle_reasons(0x1001) == ("gpu_idle", "unknown_0x1000")
