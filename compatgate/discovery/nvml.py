"""GPUs through NVML, when ``nvidia-ml-py`` is installed (``pip install compatgate[nvml]``)."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from compatgate.discovery.nvidia_smi.report import Device, Report, Slice


def read_nvml(nvml: Any = None) -> Report | None:
    """What NVML reports; None without the library, the driver or a GPU.

    Args:
        nvml: the ``pynvml`` module; None: import it.
    """
    if nvml is None:
        try:
            nvml = import_module("pynvml")
        except ImportError:
            return None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    try:
        return _report(nvml)
    except nvml.NVMLError:
        return None
    finally:
        nvml.nvmlShutdown()


def _report(nvml: Any) -> Report | None:
    handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
    devices = tuple(_device(nvml, handle) for handle in handles)
    if not devices:
        return None
    cuda = _asked(nvml, nvml.nvmlSystemGetCudaDriverVersion_v2)
    return Report(
        "NVML",
        driver=_text(nvml.nvmlSystemGetDriverVersion()),
        cuda=f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None,
        devices=devices,
    )


def _device(nvml: Any, handle: Any) -> Device:
    memory = _asked(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    capability = _asked(nvml, nvml.nvmlDeviceGetCudaComputeCapability, handle)
    mode = _asked(nvml, nvml.nvmlDeviceGetMigMode, handle)
    mig = bool(mode and mode[0])
    return Device(
        _text(nvml.nvmlDeviceGetName(handle)),
        bus=_bus(nvml, handle),
        memory_mib=memory.total // 2**20 if memory else None,
        capability=f"{capability[0]}.{capability[1]}" if capability else None,
        mig=mig,
        slices=_slices(nvml, handle) if mig else (),
        uuid=_text(_asked(nvml, nvml.nvmlDeviceGetUUID, handle) or "") or None,
    )


def _bus(nvml: Any, handle: Any) -> str:
    info = _asked(nvml, nvml.nvmlDeviceGetPciInfo, handle)
    return _text(info.busId).lower() if info else ""


def _slices(nvml: Any, handle: Any) -> tuple[Slice, ...]:
    """The MIG devices; their names end in the profile (``... MIG 1g.10gb``)."""
    count = _asked(nvml, nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0
    found = []
    for index in range(count):
        part = _asked(nvml, nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, index)
        if part is None:
            continue
        name = _text(_asked(nvml, nvml.nvmlDeviceGetName, part) or "")
        memory = _asked(nvml, nvml.nvmlDeviceGetMemoryInfo, part)
        found.append(
            Slice(
                profile=name.partition(" MIG ")[2].strip() or None,
                memory_mib=memory.total // 2**20 if memory else None,
                uuid=_text(_asked(nvml, nvml.nvmlDeviceGetUUID, part) or "") or None,
            )
        )
    return tuple(found)


def _asked(nvml: Any, function: Any, *arguments: Any) -> Any:
    """A property; None where this GPU or driver does not have it."""
    try:
        return function(*arguments)
    except nvml.NVMLError:
        return None


def _text(value: bytes | str) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
