"""Represent the output of ``nvidia-smi`` in any of its formats, and turn it into pools.

Products come first: the table truncates names, and most formats do not name MIG profiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.facts import Facts
from compatgate.core.facts.nvidia import Gpu, Gpus
from compatgate.core.gpus import find_gpu, mig_profiles, normalise
from compatgate.core.versions import format_parts, parse_version
from compatgate.discovery.nvidia_smi.node_parts import join_parts, note_fabric
from compatgate.discovery.observations import DRIVER_CUDA, Conflict, ObservedPool
from compatgate.errors import BadInput

T = TypeVar("T", bound=Struct)
NODE_LABELS = "node labels"
"""Form of a report from the labels of a Kubernetes node."""
_ABSENT = frozenset({"", "n/a", "[n/a]", "err!", "not found", "[not supported]", "none", "unknown"})


class Slice(Struct, frozen=True):
    """A MIG device; on Ampere and Hopper it has as many copy engines as compute slices."""

    profile: str | None = None
    memory_mib: int | None = None
    engines: int | None = None
    uuid: str | None = None


class Device(Struct, frozen=True):
    """A reported GPU; the table truncates its name (``NVIDIA A100 80G...``).

    The virtualization mode is like ``VGPU`` or ``Host VGPU``, ``fabric`` the state of its
    registration with the NVLink fabric. ``node`` is what it says of the node: VBIOS, GSP firmware.
    """

    name: str
    bus: str = ""
    memory_mib: int | None = None
    capability: str | None = None
    mig: bool = False
    slices: tuple[Slice, ...] = ()
    uuid: str | None = None
    virtualization: str | None = None
    node: dict[str, str] = {}
    fabric: str | None = None

    @property
    def cut_off(self) -> bool:
        """Return whether the table had no room for the whole name."""
        return self.name.endswith("...")


class Guest(Struct, frozen=True):
    """A vGPU that a host serves, and the driver of its virtual machine, where it is known."""

    name: str
    driver: str | None = None


class Report(Struct, frozen=True):
    """One output of ``nvidia-smi``.

    The form is ``table``, ``-q``, ``-q -x``, ``csv``, ``-L``, ``collect_env``, ``vgpu``,
    ``vgpu -q`` (joined with ``+``) or `NODE_LABELS`. Under WSL the tool's version differs from the
    driver's. ``attached`` is the number of GPUs of the host.
    """

    form: str
    driver: str | None = None
    cuda: str | None = None
    tool: str | None = None
    os: str = "linux"
    attached: int | None = None
    devices: tuple[Device, ...] = ()
    guests: tuple[Guest, ...] = ()
    host: bool = False
    guest: bool = False
    manager: str | None = None
    node: dict[str, str] = {}

    @staticmethod
    def joined(reports: Sequence[Report]) -> Report:
        """Join several outputs of one host; values of earlier ones decide."""
        best = next((report for report in reports if report.devices), reports[0])
        devices = best.devices
        for other in reports:
            if len(other.devices) == len(devices):
                devices = tuple(map(_complete_device, devices, other.devices))
        stated = {
            name: next(filter(None, (getattr(report, name) for report in reports)), None)
            for name in ("driver", "cuda", "tool")
        }
        return replace(
            best,
            form=" + ".join(report.form for report in reports),
            **stated,
            os=next((report.os for report in reports if report.os != "linux"), "linux"),
            devices=devices,
            guests=max(
                (report.guests for report in reports),
                key=lambda guests: (len(guests), sum(not g.name.endswith("...") for g in guests)),
            ),
            host=any(report.host for report in reports),
            node={name: value for r in reversed(reports) for name, value in r.node.items()},
        )


def _complete_device(device: Device, other: Device) -> Device:
    slices = device.slices or other.slices
    if len(device.slices) == len(other.slices):
        slices = tuple(map(_complete, device.slices, other.slices))
    name = other.name if device.cut_off and not other.cut_off else device.name
    node = {**other.node, **device.node}
    return replace(_complete(device, other), name=name, slices=slices, node=node)


def _complete(one: T, other: T) -> T:
    return type(one)(
        **{name: getattr(one, name) or getattr(other, name) for name in one.__struct_fields__}
    )


def read_value(text: str | None) -> str | None:
    """Return a printed value, None where nvidia-smi prints that it has none."""
    clean = (text or "").strip()
    return None if clean.lower() in _ABSENT else clean


def parse_mib(text: str | None) -> int | None:
    """Read ``40960MiB`` or ``40960 MiB``, in MiB."""
    digits = (text or "").strip().removesuffix("MiB").strip()
    return int(digits) if digits.isdecimal() else None


_USABLE_MEMORY = (0.88, 1.03)
"""Reported memory as a share of the product's nominal memory."""


def identify_product(device: Device, table: Gpus) -> tuple[str, str]:
    """Return the product, as `resolve_gpu` reads it, and a sentence on missing information.

    It is ``sm_80`` where only the compute capability is certain.
    """
    if not device.cut_off:
        if not device.capability or find_gpu(device.name, table):
            return device.name, ""
        note = f"{device.name} is not a known product; its compute capability is used"
        return device.capability, note
    start = _compact_name(device.name.rstrip(". "))
    names = {_compact_name(spelling): name for spelling, name in table.aliases.items()}
    names |= {_compact_name(name): name for name in table.gpus}
    whole = names.pop(start, None)  # a name that was cut off is longer than what is printed
    fitting = sorted({name for spelling, name in names.items() if spelling.startswith(start)})
    found = [
        table.gpus[name]
        for name in fitting
        if name != whole and _has_memory(table.gpus[name], device.memory_mib)
    ]
    if not found and whole and _has_memory(table.gpus[whole], device.memory_mib):
        found = [table.gpus[whole]]
    if len(found) == 1:
        return found[0].name, ""
    capabilities = {gpu.capability for gpu in found}
    candidates = " or ".join(gpu.name for gpu in found[:4]) or "no known product"
    advice = "nvidia-smi -q and nvidia-smi -L print names in full"
    if len(capabilities) == 1:
        note = f"'{device.name}' is truncated and may be {candidates}; {advice}"
        return f"sm_{format_parts(capabilities.pop()).replace('.', '')}", note
    raise BadInput(
        f"the product name '{device.name}' is truncated and may be {candidates}",
        field="gpu",
        value=device.name,
        hint=f"{advice}; or state it: --pool gpu=...",
    )


def _compact_name(text: str) -> str:
    return normalise(text).replace("-", "")


def _has_memory(gpu: Gpu, memory_mib: int | None) -> bool:
    if gpu.memory_gb is None or memory_mib is None:
        return True
    return _USABLE_MEMORY[0] <= memory_mib / 1024 / gpu.memory_gb <= _USABLE_MEMORY[1]


def find_profile(part: Slice, device: Device, gpu: Gpu) -> str | None:
    """Return the MIG profile of a slice, None where several profiles fit the output.

    The memory part is NVIDIA's own formula (NVIDIA/go-nvlib, pkg/nvlib/device/mig_profile.go): the
    slice's share of the memory in eighths, rounded up, of the size that the product is sold with.
    """
    if part.profile:
        return part.profile
    if not part.memory_mib or not device.memory_mib or not gpu.memory_gb:
        return None
    eighths = -(-part.memory_mib * 8 // device.memory_mib)
    size = int(gpu.memory_gb * eighths / 8 + 0.5)
    fitting = [name for name in mig_profiles(gpu) if name.endswith(f"g.{size}gb")]
    if len(fitting) > 1 and part.engines and gpu.capability[0] in (8, 9):
        # One copy engine per compute slice on Ampere and Hopper (MIG User Guide, profile tables).
        fitting = [name for name in fitting if int(name[0]) == min(part.engines, 7)]
    return fitting[0] if len(fitting) == 1 else None


class Pools(Struct, frozen=True):
    """The pools of a host, one per kind of GPU, with notes on missing information."""

    pools: tuple[ObservedPool, ...]
    notes: tuple[str, ...] = ()


def group_pools(report: Report, table: Gpus) -> Pools:
    """Group the devices of a report; a MIG slice is a kind of its own."""
    from compatgate.discovery.nvidia_smi.vgpus import group_guests, mark_vgpus

    if report.guests:
        return group_guests(report)
    kinds: dict[str, list[Device]] = {}
    notes: list[str] = []
    if report.attached and report.attached > len(report.devices):
        notes.append(f"{report.attached} GPUs are attached, {len(report.devices)} shown")
    for device in report.devices:
        product, note = identify_product(device, table)
        if note:
            notes.append(note)
        for gpu in _kinds(device, product, table, notes):
            kinds.setdefault(gpu, []).append(device)
    notes += note_fabric(device.fabric for device in report.devices)
    pools: list[ObservedPool] = []
    for gpu, devices in kinds.items():
        # what the host states decides over its GPUs
        stated = [{**device.node, **report.node} for device in devices]
        if report.os != "linux":  # Windows, and WSL's host, have other modules and firmware modes
            stated = [{name: one[name] for name in one if name == "vbios"} for one in stated]
        node = join_parts(stated, gpu, notes)
        known = find_gpu(gpu, table)
        name = "-".join((known.sku if known else gpu).lower().split())
        count = len(devices)
        pools.append(ObservedPool(name, gpu, report.driver, report.os, devices=count, node=node))
    marked = mark_vgpus(pools, report, table, notes)
    return Pools(marked, tuple(dict.fromkeys(notes)))


def _kinds(device: Device, product: str, table: Gpus, notes: list[str]) -> list[str]:
    """Return the device itself, or its MIG slices."""
    if not device.slices:
        if device.mig:
            notes.append(f"{product} is in MIG mode and has no MIG device: nothing runs on it")
        return [product]
    gpu = find_gpu(product, table)
    if gpu and gpu.vgpu:  # the slice of a MIG-backed vGPU is the vGPU itself
        return [product]
    kinds = []
    for part in device.slices:
        profile = find_profile(part, device, gpu) if gpu else part.profile
        if profile is None:
            notes.append(
                f"the MIG profile of a slice of {product} cannot be told from this output, the "
                "whole GPU is used; nvidia-smi -L names profiles"
            )
        kinds.append(f"{product} MIG {profile}" if profile else product)
    return kinds


def find_disagreements(report: Report, facts: Facts) -> tuple[Conflict, ...]:
    """Return conflicts between the printed CUDA version and the driver's.

    ``nvidia-smi`` prints the CUDA version of the libcuda that its process loads: inside a container
    with a forward-compatibility package it is the package's version, not the host driver's.
    """
    if not report.driver or not report.cuda or report.os != "linux":
        return ()
    try:
        driver = parse_version("driver", report.driver)
        printed = parse_version("cuda", report.cuda).major_minor
    except BadInput:
        return ()
    branch = facts.driver_branches.branches.get(driver.major)
    if branch is None or branch.cuda is None or branch.cuda == printed:
        return ()
    own = format_parts(branch.cuda)
    labels = report.form == NODE_LABELS
    who = "GPU Feature Discovery" if labels else "nvidia-smi"
    says = "the labels say" if labels else "nvidia-smi prints"
    if printed > branch.cuda:
        why = f"a forward-compatibility package (cuda-compat) was loaded where {who} ran"
    else:
        why = f"an older libcuda was loaded where {who} ran"
    message = (
        f"{says} CUDA {report.cuda}, but driver {report.driver} is of CUDA {own}: "
        f"{why}; the driver version decides"
    )
    return (Conflict(DRIVER_CUDA, message, own),)
