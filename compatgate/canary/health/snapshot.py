"""Read the state of every GPU of this host: through NVML (extra ``nvml``), or from nvidia-smi."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, NamedTuple
from xml.parsers import expat

from msgspec import Struct

from compatgate.canary.health.gpu_errors import parse_device
from compatgate.discovery.driver import nvml_text, open_nvml, query_nvml
from compatgate.discovery.nvidia_smi.formats import list_elements
from compatgate.errors import quote_error

PROGRAM = "nvidia-smi"
_PATIENCE_S = 30
_LONGEST_TEXT = 4 << 20
_ABSENT = frozenset({"", "n/a", "[n/a]", "err!", "not found", "not supported", "unknown error"})
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_FLAGS = {"yes": True, "no": False, "enabled": True, "disabled": False}
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
# Elements below clocks_event_reasons, which old drivers call clocks_throttle_reasons.
_REASON = re.compile(r"clocks_(?:event|throttle)_reasons/clocks_(?:event|throttle)_reason_(\w+)")
_REASON_NAMES = {"display_clocks_setting": "display_clock_setting"}
# nvml.h, nvmlDeviceGpuRecoveryAction_t.
_RECOVERY = ("none", "gpu_reset", "node_reboot", "drain_p2p", "drain_and_reset")
_RECOVERY_NAMES = {"reset": "gpu_reset", "reboot": "node_reboot"}
"""Names of NVML for recovery actions that nvidia-smi shortens."""
# nvml.h, nvmlGpuFabricState_t; 0: not supported.
FABRIC_STATES = {1: "not_started", 2: "in_progress", 3: "completed"}
_SINGLE_BIT, _DOUBLE_BIT = 0, 1
_GPU_SENSOR = 0
Fields = dict[str, str]
_FIELDS: tuple[tuple[str, type, tuple[Any, ...], tuple[str, ...]], ...] = (
    ("uuid", str, ("nvmlDeviceGetUUID",), ("uuid",)),
    ("name", str, ("nvmlDeviceGetName",), ("product_name",)),
    ("persistence", bool, ("nvmlDeviceGetPersistenceMode",), ("persistence_mode",)),
    # kind of error: 0 corrected, 1 uncorrected; counter: 0 volatile, 1 aggregate
    ("ecc_corrected_volatile", int, ("nvmlDeviceGetTotalEccErrors", 0, 0), ()),
    ("ecc_uncorrected_volatile", int, ("nvmlDeviceGetTotalEccErrors", 1, 0), ()),
    ("ecc_corrected_aggregate", int, ("nvmlDeviceGetTotalEccErrors", 0, 1), ()),
    ("ecc_uncorrected_aggregate", int, ("nvmlDeviceGetTotalEccErrors", 1, 1), ()),
    ("retirement_pending", bool, ("nvmlDeviceGetRetiredPagesPendingStatus",),
     ("retired_pages/pending_retirement", "retired_pages/pending_blacklist")),
    ("sram_threshold_exceeded", bool, (), ("ecc_errors/aggregate/sram_threshold_exceeded",)),
    ("remapped_corrected", int, (), ("remapped_rows/remapped_row_corr",)),
    ("remapped_uncorrected", int, (), ("remapped_rows/remapped_row_unc",)),
    ("remap_pending", bool, (), ("remapped_rows/remapped_row_pending",)),
    ("remap_failed", bool, (), ("remapped_rows/remapped_row_failure",)),
    # clock: 1 of the SMs, 2 of the memory
    ("sm_clock_mhz", int, ("nvmlDeviceGetClockInfo", 1), ("clocks/sm_clock",)),
    ("memory_clock_mhz", int, ("nvmlDeviceGetClockInfo", 2), ("clocks/mem_clock",)),
    ("sm_clock_max_mhz", int, ("nvmlDeviceGetMaxClockInfo", 1), ("max_clocks/sm_clock",)),
    ("gsp", str, ("nvmlDeviceGetGspFirmwareVersion",), ("gsp_firmware_version",)),
    ("temperature_c", int, ("nvmlDeviceGetTemperature", _GPU_SENSOR), ("temperature/gpu_temp",)),
    ("utilisation", int, (), ("utilization/gpu_util",)),
    ("memory_utilisation", int, (), ("utilization/memory_util",)),
)  # fmt: skip
"""Field of `Gpu`, its type, function of NVML with arguments, elements of nvidia-smi, first wins."""


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
    found: dict[str, Any] = {field: ask(*call) for field, _, call, _ in _FIELDS if call}
    names = ("remapped_corrected", "remapped_uncorrected", "remap_pending", "remap_failed")
    found |= zip(names, ask("nvmlDeviceGetRemappedRows") or (), strict=False)
    sram = _fill(nvml, "nvmlDeviceGetSramEccErrorStatus", "c_nvmlEccSramErrorStatus_v1_t", handle)
    found["sram_threshold_exceeded"] = getattr(sram, "bThresholdExceeded", None)
    used = ask("nvmlDeviceGetUtilizationRates")
    found |= {"utilisation": used.gpu, "memory_utilisation": used.memory} if used else {}
    for field, kind, _, _ in _FIELDS:
        if kind is not int and (value := found.get(field)) is not None:
            found[field] = nvml_text(value) if kind is str else bool(value)
    fabric = _fill(nvml, "nvmlDeviceGetGpuFabricInfo", "c_nvmlGpuFabricInfo_t", handle)
    double, single = (ask("nvmlDeviceGetRetiredPages", kind) for kind in (_DOUBLE_BIT, _SINGLE_BIT))
    pages = [None if listed is None else len(listed) for listed in (double, single)]
    mask = ask("nvmlDeviceGetCurrentClocksEventReasons")
    if mask is None:
        mask = ask("nvmlDeviceGetCurrentClocksThrottleReasons")
    power, mode, info = (
        ask(f"nvmlDeviceGet{name}") for name in ("PowerUsage", "MigMode", "PciInfo")
    )
    processes = ask("nvmlDeviceGetComputeRunningProcesses")
    if processes is not None:  # on the whole GPU, MIG devices included
        memory = {one.pid: getattr(one, "usedGpuMemory", None) or None for one in processes}
        processes = tuple(Process(pid, memory[pid]) for pid in sorted(memory))
    return Gpu(
        index=index,
        pci=parse_device(nvml_text(info.busId) or "") if info else None,
        lost=lost,
        mig=bool(mode[0]) if mode else None,
        retired_pages=pages[0],
        retired_pages_total=_add(pages),
        recovery=_read_recovery(nvml, handle),
        throttle=decode_throttle_reasons(mask) if mask is not None else None,
        fabric=FABRIC_STATES.get(getattr(fabric, "state", 0)),
        power_w=power / 1000 if power is not None else None,
        processes=processes,
        **found,
    )


def _fill(nvml: Any, function: str, structure: str, handle: Any) -> Any:
    """Return a structure that a function of NVML fills; None where one of them is missing."""
    make = getattr(nvml, structure, None)
    if make is None:
        return None
    value = make()
    done = query_nvml(nvml, function, handle, ctypes.byref(value))
    return None if done is None else value


def _read_recovery(nvml: Any, handle: Any) -> str | None:
    field = getattr(nvml, "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION", None)
    values = query_nvml(nvml, "nvmlDeviceGetFieldValues", handle, [field]) if field else None
    if not values or values[0].nvmlReturn != 0:
        return None
    number = values[0].value.uiVal
    return _RECOVERY[number] if number < len(_RECOVERY) else f"unknown_{number}"


def _is_lost_error(nvml: Any, error: Exception) -> bool:
    lost = getattr(nvml, "NVML_ERROR_GPU_IS_LOST", 15)
    return getattr(error, "value", None) == lost


def _add(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


class SmiAnswer(NamedTuple):
    """The answer of nvidia-smi: a snapshot, or the text of a failure; both None: not installed."""

    snapshot: Snapshot | None
    said: str | None


def ask_nvidia_smi(program: str = PROGRAM) -> SmiAnswer:
    """Run ``nvidia-smi -q -x`` and return its answer."""
    try:
        done = subprocess.run(  # noqa: S603 - the program is the driver's own
            [program, "-q", "-x"], capture_output=True, timeout=_PATIENCE_S, check=False
        )
    except FileNotFoundError:
        return SmiAnswer(None, None)
    except subprocess.TimeoutExpired:
        return SmiAnswer(None, f"{program} did not answer in {_PATIENCE_S} s")
    except OSError as error:
        return SmiAnswer(None, f"{program}: {quote_error(error)}")
    text = done.stdout[:_LONGEST_TEXT].decode("utf-8", "replace")
    snapshot = parse_smi(text)
    if snapshot is not None and snapshot.gpus:
        return SmiAnswer(snapshot, None)
    said = " ".join((text[:2000] + " " + done.stderr[:2000].decode("utf-8", "replace")).split())
    if snapshot is not None:
        said = "nvidia-smi: No devices were found"
    return SmiAnswer(None, said or f"{program} ended with status {done.returncode}")


def ask_gpus() -> SmiAnswer:
    """Return the state of the GPUs from NVML, else from nvidia-smi."""
    now = snapshot()
    return SmiAnswer(now, None) if now else ask_nvidia_smi()


def parse_smi(text: str) -> Snapshot | None:
    """Return the snapshot in a document of ``nvidia-smi -q -x``; None if the text is none."""
    start = text.find("<nvidia_smi_log")
    if start < 0:
        return None
    try:
        elements = list_elements(text[start:])
    except expat.ExpatError:
        return None
    head: Fields = {}
    found: list[Fields] = []
    for path, value in elements:
        if path == ("gpu",):
            found.append({"id": value})
            continue
        fields, names = (found[-1], path[1:]) if path[:1] == ("gpu",) else (head, path)
        key = "/".join(names)
        if value:  # a repeated path, such as that of processes, keeps all values, a line each
            fields[key] = f"{fields[key]}\n{value}" if key in fields else value
    gpus = tuple(_read_smi_gpu(index, fields) for index, fields in enumerate(found))
    driver = _value(head.get("driver_version") or head.get("kmd_version"))
    cuda = _value(head.get("cuda_version") or head.get("cuda_umd_version"))
    return Snapshot(datetime.now(UTC), driver, gpus, cuda)


def _read_smi_gpu(index: int, fields: Fields) -> Gpu:
    def value(*names: str) -> str | None:
        return next((v for n in names if (v := _value(fields.get(n))) is not None), None)

    def number(*names: str) -> int | None:
        match = _NUMBER.match(value(*names) or "")
        return int(float(match[0])) if match else None

    def flag(*names: str) -> bool | None:
        return _FLAGS.get((value(*names) or "").lower())

    read: dict[type, Callable[..., Any]] = {str: value, int: number, bool: flag}
    found = {field: read[kind](*names) for field, kind, _, names in _FIELDS if names}
    for since in ("volatile", "aggregate"):  # of SRAM and DRAM, or before Ampere the total
        counted = [
            number(f"ecc_errors/{since}/{name}")
            for name in (
                "sram_uncorrectable", "sram_uncorrectable_parity", "sram_uncorrectable_secded",
                "dram_uncorrectable", "double_bit/total",
            )
        ]  # fmt: skip
        found[f"ecc_uncorrected_{since}"] = _add(counted)
    pages = [
        number(f"retired_pages/{kind}/retired_count")
        for kind in ("double_bit_retirement", "multiple_single_bit_retirement")
    ]
    power = value(
        "gpu_power_readings/instant_power_draw",
        "gpu_power_readings/average_power_draw",
        "gpu_power_readings/power_draw",
        "power_readings/power_draw",
    )
    watts = _NUMBER.search(power or "")
    fabric, recovery = (
        (value(name) or "").lower().replace(" ", "_")
        for name in ("fabric/state", "gpu_recovery_action")
    )
    reasons = {
        match[1]: state.lower() == "active"
        for name, state in fields.items()
        if (match := _REASON.fullmatch(name))
    }
    active = tuple(_REASON_NAMES.get(name, name) for name, on in reasons.items() if on)
    return Gpu(
        index=index,
        pci=parse_device(fields["id"]),
        lost="gpu is lost" in " ".join(fields.values()).lower(),
        mig=flag("mig_mode/current_mig"),
        retired_pages=pages[0],
        retired_pages_total=_add(pages),
        recovery=_RECOVERY_NAMES.get(recovery, recovery) or None,
        throttle=active if reasons else None,
        fabric=fabric if fabric in FABRIC_STATES.values() else None,
        power_w=float(watts[0]) if watts else None,
        processes=_read_smi_processes(fields),
        **found,
    )


def _read_smi_processes(fields: Fields) -> tuple[Process, ...] | None:
    """Return the processes that compute; None where the driver does not list processes."""
    if _ABSENT & {fields.get("processes", "-").lower()}:
        return None
    pids = fields.get("processes/process_info/pid", "").split("\n")
    kinds = fields.get("processes/process_info/type", "").split("\n")
    processes = {int(pid) for pid, kind in zip(pids, kinds, strict=False) if "C" in kind}
    return tuple(map(Process, sorted(processes)))


def _value(text: str | None) -> str | None:
    return None if text is None or text.strip().lower() in _ABSENT else text.strip()
