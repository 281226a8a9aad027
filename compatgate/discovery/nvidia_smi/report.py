"""Represent the output of ``nvidia-smi`` in any of its formats."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

NODE_LABELS = "node labels"
"""Form of a report from the labels of a Kubernetes node."""

_ABSENT = frozenset({"", "n/a", "[n/a]", "err!", "not found", "[not supported]", "none", "unknown"})


class Slice(Struct, frozen=True):
    """A MIG device.

    Attributes:
        profile: ``1g.10gb`` where the output names it (only ``-L`` does).
        memory_mib: memory in MiB.
        engines: number of copy engines; on Ampere and Hopper as many as its compute slices.
        uuid: ``MIG-...``.
    """

    profile: str | None = None
    memory_mib: int | None = None
    engines: int | None = None
    uuid: str | None = None


class Device(Struct, frozen=True):
    """A reported GPU.

    Attributes:
        name: printed product name; the table truncates it (``NVIDIA A100 80G...``).
        bus: PCI address or index, to join outputs of the same host.
        memory_mib: total memory, in MiB.
        capability: compute capability where the query has it (``compute_cap``).
        mig: MIG mode is on now.
        uuid: ``GPU-...``.
    """

    name: str
    bus: str = ""
    memory_mib: int | None = None
    capability: str | None = None
    mig: bool = False
    slices: tuple[Slice, ...] = ()
    uuid: str | None = None

    @property
    def cut_off(self) -> bool:
        """Return whether the table had no room for the whole name."""
        return self.name.endswith("...")


class Report(Struct, frozen=True):
    """One output of ``nvidia-smi``.

    Attributes:
        form: ``table``, ``-q``, ``-q -x``, ``csv`` or ``-L``, joined with ``+``; `NODE_LABELS`.
        driver: kernel driver.
        cuda: CUDA version that the loaded user-mode driver reports.
        tool: version of nvidia-smi; under WSL it differs from the driver.
        os: ``linux``, ``windows`` or ``wsl``.
        attached: number of GPUs of the host, where the output has it.
    """

    form: str
    driver: str | None = None
    cuda: str | None = None
    tool: str | None = None
    os: str = "linux"
    attached: int | None = None
    devices: tuple[Device, ...] = ()

    @staticmethod
    def joined(reports: Sequence[Report]) -> Report:
        """Join several outputs of one host; values of earlier ones decide."""
        best = next(report for report in reports if report.devices)
        others = [report for report in reports if report is not best]
        devices = best.devices
        for other in others:
            if len(other.devices) == len(devices):
                devices = tuple(map(_completed, devices, other.devices))
        return replace(
            best,
            form=" + ".join(report.form for report in reports),
            driver=_first(report.driver for report in reports),
            cuda=_first(report.cuda for report in reports),
            tool=_first(report.tool for report in reports),
            os=_first(r.os for r in reports if r.os != "linux") or "linux",
            devices=devices,
        )


def _completed(device: Device, other: Device) -> Device:
    """Complete a device with values of another output of the same host."""
    return replace(
        device,
        name=other.name if device.cut_off and not other.cut_off else device.name,
        memory_mib=device.memory_mib or other.memory_mib,
        capability=device.capability or other.capability,
        mig=device.mig or other.mig,
        slices=_completed_slices(device.slices, other.slices),
        uuid=device.uuid or other.uuid,
    )


def _completed_slices(slices: tuple[Slice, ...], other: tuple[Slice, ...]) -> tuple[Slice, ...]:
    if len(slices) != len(other):
        return slices or other
    return tuple(
        replace(one, uuid=one.uuid or two.uuid, profile=one.profile or two.profile)
        for one, two in zip(slices, other, strict=True)
    )


def _first(values: Iterable[str | None]) -> str | None:
    return next((value for value in values if value), None)


def stated(text: str | None) -> str | None:
    """Return a printed value, None where nvidia-smi prints that it has none."""
    clean = (text or "").strip()
    return None if clean.lower() in _ABSENT else clean


def mib(text: str | None) -> int | None:
    """Read ``40960MiB`` or ``40960 MiB``, in MiB."""
    digits = (text or "").strip().removesuffix("MiB").strip()
    return int(digits) if digits.isdecimal() else None
