"""Read the state of every GPU of this host from ``nvidia-smi -q -x``."""

from __future__ import annotations

import re
import subprocess
from datetime import UTC, datetime
from typing import NamedTuple
from xml.parsers import expat

from compatgate.canary.health.gpu_errors import parse_device
from compatgate.canary.health.snapshot import Gpu, Process, Snapshot
from compatgate.discovery.nvidia_smi.formats import list_elements
from compatgate.errors import quote_error

PROGRAM = "nvidia-smi"
_PATIENCE_S = 30
_LONGEST_TEXT = 4 << 20
_ABSENT = frozenset({"", "n/a", "[n/a]", "err!", "not found", "not supported", "unknown error"})
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
# Elements below clocks_event_reasons, which old drivers call clocks_throttle_reasons.
_REASONS = {
    "gpu_idle": "gpu_idle",
    "applications_clocks_setting": "applications_clocks_setting",
    "sw_power_cap": "sw_power_cap",
    "hw_slowdown": "hw_slowdown",
    "hw_thermal_slowdown": "hw_thermal_slowdown",
    "hw_power_brake_slowdown": "hw_power_brake_slowdown",
    "sync_boost": "sync_boost",
    "sw_thermal_slowdown": "sw_thermal_slowdown",
    "display_clocks_setting": "display_clock_setting",
}
_REASON = re.compile(r"clocks_(?:event|throttle)_reasons/clocks_(?:event|throttle)_reason_(\w+)")
_RECOVERY = {"reset": "gpu_reset", "reboot": "node_reboot"}
"""Names of NVML for recovery actions that nvidia-smi shortens."""
Fields = dict[str, str]


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
        if path == ("gpu", "@id"):
            found.append({"id": value})
            continue
        fields, names = (found[-1], path[1:]) if path[:1] == ("gpu",) else (head, path)
        key = "/".join(names)
        if value:  # a repeated path, such as that of processes, keeps all values, a line each
            fields[key] = f"{fields[key]}\n{value}" if key in fields else value
    gpus = tuple(_read_gpu(index, fields) for index, fields in enumerate(found))
    driver = _value(head.get("driver_version") or head.get("kmd_version"))
    cuda = _value(head.get("cuda_version") or head.get("cuda_umd_version"))
    return Snapshot(datetime.now(UTC), driver, gpus, cuda)


def _read_gpu(index: int, fields: Fields) -> Gpu:
    def value(*names: str) -> str | None:
        return next((v for n in names if (v := _value(fields.get(n))) is not None), None)

    def number(*names: str) -> int | None:
        return _number(value(*names))

    single = number("retired_pages/multiple_single_bit_retirement/retired_count")
    double = number("retired_pages/double_bit_retirement/retired_count")
    pages = [count for count in (single, double) if count is not None]
    power = value(
        "gpu_power_readings/instant_power_draw",
        "gpu_power_readings/average_power_draw",
        "gpu_power_readings/power_draw",
        "power_readings/power_draw",
    )
    fabric = (value("fabric/state") or "").lower().replace(" ", "_")
    recovery = (value("gpu_recovery_action") or "").lower().replace(" ", "_")
    return Gpu(
        index=index,
        uuid=value("uuid"),
        pci=parse_device(fields["id"]),
        name=value("product_name"),
        lost="gpu is lost" in " ".join(fields.values()).lower(),
        mig=_flag(value("mig_mode/current_mig")),
        persistence=_flag(value("persistence_mode")),
        ecc_uncorrected_volatile=_uncorrected(fields, "volatile"),
        ecc_uncorrected_aggregate=_uncorrected(fields, "aggregate"),
        retired_pages=double,
        retired_pages_total=sum(pages) if pages else None,
        retirement_pending=_flag(
            value("retired_pages/pending_retirement", "retired_pages/pending_blacklist")
        ),
        sram_threshold_exceeded=_flag(value("ecc_errors/aggregate/sram_threshold_exceeded")),
        remapped_corrected=number("remapped_rows/remapped_row_corr"),
        remapped_uncorrected=number("remapped_rows/remapped_row_unc"),
        remap_pending=_flag(value("remapped_rows/remapped_row_pending")),
        remap_failed=_flag(value("remapped_rows/remapped_row_failure")),
        recovery=_RECOVERY.get(recovery, recovery) or None,
        throttle=_reasons(fields),
        sm_clock_mhz=number("clocks/sm_clock"),
        memory_clock_mhz=number("clocks/mem_clock"),
        sm_clock_max_mhz=number("max_clocks/sm_clock"),
        fabric=fabric if fabric in ("not_started", "in_progress", "completed") else None,
        gsp=value("gsp_firmware_version"),
        temperature_c=number("temperature/gpu_temp"),
        power_w=float(found[0]) if power and (found := _NUMBER.search(power)) else None,
        utilisation=number("utilization/gpu_util"),
        memory_utilisation=number("utilization/memory_util"),
        processes=_processes(fields),
    )


def _value(text: str | None) -> str | None:
    return None if text is None or text.strip().lower() in _ABSENT else text.strip()


def _number(text: str | None) -> int | None:
    found = _NUMBER.match(text) if text else None
    return int(float(found[0])) if found else None


def _flag(text: str | None) -> bool | None:
    known = {"yes": True, "no": False, "enabled": True, "disabled": False}
    return known.get((text or "").lower())


def _uncorrected(fields: Fields, since: str) -> int | None:
    """Return the uncorrected ECC errors: of SRAM and DRAM, or before Ampere the total."""
    folder = f"ecc_errors/{since}/"
    names = ("sram_uncorrectable", "sram_uncorrectable_parity", "sram_uncorrectable_secded")
    found = [_number(_value(fields.get(folder + name))) for name in (*names, "dram_uncorrectable")]
    found.append(_number(_value(fields.get(f"{folder}double_bit/total"))))
    counted = [count for count in found if count is not None]
    return sum(counted) if counted else None


def _reasons(fields: Fields) -> tuple[str, ...] | None:
    reasons = {
        match[1]: value.lower() == "active"
        for name, value in fields.items()
        if (match := _REASON.fullmatch(name))
    }
    if not reasons:
        return None
    return tuple(_REASONS.get(name, name) for name, active in reasons.items() if active)


def _processes(fields: Fields) -> tuple[Process, ...] | None:
    """Return the processes that compute; None where the driver does not list processes."""
    if _ABSENT & {fields.get("processes", "-").lower()}:
        return None
    pids = fields.get("processes/process_info/pid", "").split("\n")
    kinds = fields.get("processes/process_info/type", "").split("\n")
    processes = {int(pid) for pid, kind in zip(pids, kinds, strict=False) if "C" in kind}
    return tuple(map(Process, sorted(processes)))
