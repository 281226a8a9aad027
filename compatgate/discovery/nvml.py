"""GPUs through NVML, when ``nvidia-ml-py`` is installed (``pip install compatgate[nvml]``)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from compatgate.discovery.nvidia_smi.report import Device, Report, Slice


def read_nvml(nvml: Any = None) -> Report | None:
    """What NVML reports; None without the library, the driver or a GPU.

    Args:
        nvml: the ``pynvml`` module; None: import it.
    """
    with opened(nvml) as library:
        if library is None:
            return None
        try:
            return _report(library)
        except library.NVMLError:
            return None


@contextmanager
def opened(nvml: Any = None) -> Iterator[Any]:
    """NVML while the block runs; None without the library or the driver.

    Args:
        nvml: the ``pynvml`` module; None: import it.
    """
    if nvml is None:
        try:
            nvml = import_module("pynvml")
        except ImportError:
            yield None
            return
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        yield None
        return
    try:
        yield nvml
    finally:
        nvml.nvmlShutdown()


def asked(nvml: Any, name: str, *arguments: Any) -> Any:
    """A property; None where this GPU, driver or binding does not have it."""
    function = getattr(nvml, name, None)
    if function is None:
        return None
    try:
        return function(*arguments)
    except nvml.NVMLError:
        return None


def text(value: bytes | str | None) -> str | None:
    """A string of NVML, whichever way the binding gives it."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _report(nvml: Any) -> Report | None:
    handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
    devices = tuple(_device(nvml, handle) for handle in handles)
    if not devices:
        return None
    cuda = asked(nvml, "nvmlSystemGetCudaDriverVersion_v2")
    return Report(
        "NVML",
        driver=text(nvml.nvmlSystemGetDriverVersion()),
        cuda=f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None,
        devices=devices,
    )


def _device(nvml: Any, handle: Any) -> Device:
    memory = asked(nvml, "nvmlDeviceGetMemoryInfo", handle)
    capability = asked(nvml, "nvmlDeviceGetCudaComputeCapability", handle)
    mode = asked(nvml, "nvmlDeviceGetMigMode", handle)
    mig = bool(mode and mode[0])
    return Device(
        text(nvml.nvmlDeviceGetName(handle)) or "",
        bus=_bus(nvml, handle),
        memory_mib=memory.total // 2**20 if memory else None,
        capability=f"{capability[0]}.{capability[1]}" if capability else None,
        mig=mig,
        slices=_slices(nvml, handle) if mig else (),
        uuid=text(asked(nvml, "nvmlDeviceGetUUID", handle)) or None,
    )


def _bus(nvml: Any, handle: Any) -> str:
    info = asked(nvml, "nvmlDeviceGetPciInfo", handle)
    return (text(info.busId) or "").lower() if info else ""


def _slices(nvml: Any, handle: Any) -> tuple[Slice, ...]:
    """The MIG devices; their names end in the profile (``... MIG 1g.10gb``)."""
    count = asked(nvml, "nvmlDeviceGetMaxMigDeviceCount", handle) or 0
    found = []
    for index in range(count):
        part = asked(nvml, "nvmlDeviceGetMigDeviceHandleByIndex", handle, index)
        if part is None:
            continue
        name = text(asked(nvml, "nvmlDeviceGetName", part)) or ""
        memory = asked(nvml, "nvmlDeviceGetMemoryInfo", part)
        found.append(
            Slice(
                profile=name.partition(" MIG ")[2].strip() or None,
                memory_mib=memory.total // 2**20 if memory else None,
                uuid=text(asked(nvml, "nvmlDeviceGetUUID", part)) or None,
            )
        )
    return tuple(found)
