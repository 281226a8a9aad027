"""Read the state of every GPU of this host through NVML (extra ``nvml``)."""

from __future__ import annotations

import ctypes
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from compatgate.canary.health.gpu_errors import parse_device
from compatgate.discovery.driver import nvml_text, open_nvml, query_nvml


class Process(Struct, frozen=True):
    """A process that computes on a GPU; the id is the host's."""

    pid: int
    memory_bytes: int | None = None


class Gpu(Struct, frozen=True):
    """State of a GPU at a moment; None where the GPU or its driver does not report a value.

    Attributes:
        pci: ``0000:9b:00``, as events name it.
        retired_pages: for double-bit errors (before Ampere); ``retired_pages_total``: for any
            errors; ``retirement_pending``: they take effect after a reboot.
        remapped_uncorrected: rows remapped for uncorrected errors (Ampere and newer);
            ``remap_pending``: they take effect after a reset; ``remap_failed``: no spare row was
            left.
        fabric: state of the NVSwitch fabric: ``not_started``, ``in_progress``, ``completed``; None
            where the GPU is on none.
        throttle: reasons for lower clocks than requested, by NVML's names (``hw_slowdown``).
        recovery: recovery that the driver asks for: ``none``, ``gpu_reset``, ``node_reboot``, ...
        utilisation: percent of the last sample period in which a kernel ran.
    """

    index: int
    uuid: str | None = None
    pci: str | None = None
    name: str | None = None
    lost: bool = False
    mig: bool | None = None
    persistence: bool | None = None
    ecc_corrected_volatile: int | None = None
    ecc_uncorrected_volatile: int | None = None
    ecc_corrected_aggregate: int | None = None
    ecc_uncorrected_aggregate: int | None = None
    retired_pages: int | None = None
    retired_pages_total: int | None = None
    retirement_pending: bool | None = None
    sram_threshold_exceeded: bool | None = None
    remapped_corrected: int | None = None
    remapped_uncorrected: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    recovery: str | None = None
    throttle: tuple[str, ...] | None = None
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    sm_clock_max_mhz: int | None = None
    fabric: str | None = None
    gsp: str | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    utilisation: int | None = None
    memory_utilisation: int | None = None
    processes: tuple[Process, ...] | None = None


class Snapshot(Struct, frozen=True):
    """State of every GPU of the host at a moment."""

    at: datetime
    driver: str | None
    gpus: tuple[Gpu, ...]
    cuda: str | None = None


# nvml.h, nvmlClocksEventReasons; the bits have not changed since the reasons were introduced.
_THROTTLE = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
# nvml.h, nvmlDeviceGpuRecoveryAction_t.
_RECOVERY = ("none", "gpu_reset", "node_reboot", "drain_p2p", "drain_and_reset")
_SINGLE_BIT, _DOUBLE_BIT = 0, 1
_CORRECTED, _UNCORRECTED = 0, 1
_VOLATILE, _AGGREGATE = 0, 1
_SM, _MEMORY = 1, 2
# nvml.h, nvmlGpuFabricState_t; 0: not supported.
FABRIC_STATES = {1: "not_started", 2: "in_progress", 3: "completed"}
_GPU_SENSOR = 0


def snapshot(nvml: Any = None) -> Snapshot | None:
    """Return the current state of every GPU; None without NVML, its library or a GPU."""
    with open_nvml(nvml) as library:
        if library is None:
            return None
        try:
            gpus = tuple(_read_gpu(library, index) for index in range(library.nvmlDeviceGetCount()))
            driver = nvml_text(query_nvml(library, "nvmlSystemGetDriverVersion"))
            cuda = query_nvml(library, "nvmlSystemGetCudaDriverVersion_v2")
        except library.NVMLError:
            return None
    version = f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None
    return Snapshot(datetime.now(UTC), driver, gpus, version) if gpus else None


def decode_throttle_reasons(mask: int) -> tuple[str, ...]:
    """Return the names of the reasons in NVML's mask; an unnamed bit is returned as a number."""
    known = [name for bit, name in _THROTTLE.items() if mask & bit]
    rest = mask & ~sum(_THROTTLE)
    return (*known, *([f"unknown_{rest:#x}"] if rest else []))


def _read_gpu(nvml: Any, index: int) -> Gpu:
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
    except nvml.NVMLError as error:
        return Gpu(index, lost=_is_lost_error(nvml, error))

    def ask(name: str, *arguments: Any) -> Any:
        return query_nvml(nvml, name, handle, *arguments)

    lost = False
    try:
        nvml.nvmlDeviceGetTemperature(handle, _GPU_SENSOR)  # read from the GPU itself
    except nvml.NVMLError as error:
        lost = _is_lost_error(nvml, error)
    sram = _fill(nvml, "nvmlDeviceGetSramEccErrorStatus", "c_nvmlEccSramErrorStatus_v1_t", handle)
    fabric = _fill(nvml, "nvmlDeviceGetGpuFabricInfo", "c_nvmlGpuFabricInfo_t", handle)
    remapped = ask("nvmlDeviceGetRemappedRows") or (None, None, None, None)
    retired = ask("nvmlDeviceGetRetiredPages", _DOUBLE_BIT)
    single = ask("nvmlDeviceGetRetiredPages", _SINGLE_BIT)
    pages = [len(found) for found in (retired, single) if found is not None]
    mask = ask("nvmlDeviceGetCurrentClocksEventReasons")
    if mask is None:
        mask = ask("nvmlDeviceGetCurrentClocksThrottleReasons")
    used, power = ask("nvmlDeviceGetUtilizationRates"), ask("nvmlDeviceGetPowerUsage")
    mode = ask("nvmlDeviceGetMigMode")
    info = ask("nvmlDeviceGetPciInfo")
    listed = ask("nvmlDeviceGetComputeRunningProcesses")
    if listed is None:
        processes = None
    else:
        memory = {one.pid: getattr(one, "usedGpuMemory", None) or None for one in listed}
        processes = tuple(Process(pid, memory[pid]) for pid in sorted(memory))
    field = getattr(nvml, "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION", None)
    values = query_nvml(nvml, "nvmlDeviceGetFieldValues", handle, [field]) if field else None
    if not values or values[0].nvmlReturn != 0:
        recovery = None
    else:
        number = values[0].value.uiVal
        recovery = _RECOVERY[number] if number < len(_RECOVERY) else f"unknown_{number}"
    return Gpu(
        index=index,
        uuid=nvml_text(ask("nvmlDeviceGetUUID")),
        pci=parse_device(nvml_text(info.busId) or "") if info else None,
        name=nvml_text(ask("nvmlDeviceGetName")),
        lost=lost,
        mig=bool(mode[0]) if mode else None,
        persistence=_read_flag(ask("nvmlDeviceGetPersistenceMode")),
        ecc_corrected_volatile=ask("nvmlDeviceGetTotalEccErrors", _CORRECTED, _VOLATILE),
        ecc_uncorrected_volatile=ask("nvmlDeviceGetTotalEccErrors", _UNCORRECTED, _VOLATILE),
        ecc_corrected_aggregate=ask("nvmlDeviceGetTotalEccErrors", _CORRECTED, _AGGREGATE),
        ecc_uncorrected_aggregate=ask("nvmlDeviceGetTotalEccErrors", _UNCORRECTED, _AGGREGATE),
        retired_pages=len(retired) if retired is not None else None,
        retired_pages_total=sum(pages) if pages else None,
        retirement_pending=_read_flag(ask("nvmlDeviceGetRetiredPagesPendingStatus")),
        sram_threshold_exceeded=_read_flag(getattr(sram, "bThresholdExceeded", None)),
        remapped_corrected=remapped[0],
        remapped_uncorrected=remapped[1],
        remap_pending=_read_flag(remapped[2]),
        remap_failed=_read_flag(remapped[3]),
        recovery=recovery,
        throttle=decode_throttle_reasons(mask) if mask is not None else None,
        sm_clock_mhz=ask("nvmlDeviceGetClockInfo", _SM),
        memory_clock_mhz=ask("nvmlDeviceGetClockInfo", _MEMORY),
        temperature_c=ask("nvmlDeviceGetTemperature", _GPU_SENSOR),
        sm_clock_max_mhz=ask("nvmlDeviceGetMaxClockInfo", _SM),
        fabric=FABRIC_STATES.get(getattr(fabric, "state", 0)),
        gsp=nvml_text(ask("nvmlDeviceGetGspFirmwareVersion")),
        power_w=power / 1000 if power is not None else None,
        utilisation=used.gpu if used else None,
        memory_utilisation=used.memory if used else None,
        processes=processes,
    )


def _fill(nvml: Any, function: str, structure: str, handle: Any) -> Any:
    """Return a structure that a function of NVML fills; None where one of them is missing."""
    make = getattr(nvml, structure, None)
    if make is None:
        return None
    value = make()
    done = query_nvml(nvml, function, handle, ctypes.byref(value))
    return None if done is None else value


def _is_lost_error(nvml: Any, error: Exception) -> bool:
    lost = getattr(nvml, "NVML_ERROR_GPU_IS_LOST", 15)
    return getattr(error, "value", None) == lost


def _read_flag(value: Any) -> bool | None:
    return None if value is None else bool(value)
