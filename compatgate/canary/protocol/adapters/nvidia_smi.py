"""nvidia-smi: ``-q``, ``-q -x`` and ``--query-gpu=... --format=csv``, the last also in a loop.

Driver and GPUs are those that `compatgate.discovery.nvidia_smi` reads. Metrics of csv are its
columns, ``COLUMN-gpuN`` in the unit of its header (``power.draw-gpu0`` in W); of ``-q`` they are
``temperature-gpuN`` (C), ``power-gpuN`` (W) and ``clock-sm-gpuN`` (MHz). Checks of ``-q``:
``ecc`` (no uncorrected error since the driver was loaded), ``unthrottled`` (no slowdown by heat or
power brake now), ``rows`` (no row of memory that could not be remapped).
"""

from __future__ import annotations

from compatgate.canary.protocol.adapters import smi_csv, smi_values
from compatgate.canary.protocol.adapters.found import Found
from compatgate.canary.protocol.fields import Broken
from compatgate.canary.report import Device
from compatgate.discovery.nvidia_smi import parse_nvidia_smi
from compatgate.discovery.nvidia_smi.report import Device as Reported
from compatgate.discovery.nvidia_smi.report import Report
from compatgate.errors import CompatgateError


def read_nvidia_smi(text: str, found: Found) -> None:
    """Read everything that it printed.

    Raises:
        Broken: it is not output of nvidia-smi, or is damaged.
    """
    table = smi_csv.read(text, found)
    try:
        report = parse_nvidia_smi(text)
    except CompatgateError as error:
        if table:
            return  # columns without a name: what was measured, but not on what
        raise Broken(error.detail) from None
    _say(report, found)
    smi_values.read(text, report.attached, found)


def _say(report: Report, found: Found) -> None:
    if report.driver:
        found.driver(report.driver)
    if report.cuda:
        found.other["driver-cuda"] = report.cuda
    if report.attached is not None and report.attached != len(report.devices):
        found.problem(f"{report.attached} GPUs are attached, {len(report.devices)} are described")
    for device in report.devices:
        for each in _usable(device):
            found.gpu(each)


def _usable(device: Reported) -> list[Device]:
    """The GPU, or its slices where it is partitioned."""
    whole = Device(
        name=device.name,
        uuid=device.uuid,
        pci=device.bus or None,
        memory_bytes=device.memory_mib << 20 if device.memory_mib else None,
        compute_capability=device.capability,
    )
    if not device.mig:
        return [whole]
    return [
        Device(name=device.name, uuid=part.uuid, pci=whole.pci, mig=part.profile)
        for part in device.slices
        if part.profile
    ]
