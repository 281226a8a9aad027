"""From the devices that ``nvidia-smi`` printed to products: names cut off, MIG profiles unnamed."""

from __future__ import annotations

from msgspec import Struct

from compatgate.core.facts import Gpu, Gpus
from compatgate.core.gpus import normalise, resolve_gpu
from compatgate.core.mig import mig_profiles
from compatgate.core.versions import show
from compatgate.discovery.nvidia_smi.report import Device, Slice
from compatgate.errors import BadInput

_USABLE = (0.88, 1.03)
"""Memory that is reported, relative to what the product is sold with."""


class Product(Struct, frozen=True):
    """What a device is, as `resolve_gpu` reads it, and what could not be told.

    Attributes:
        gpu: product, or ``sm_80`` where only the compute capability is certain.
        note: what the output does not show; empty when nothing is missing.
    """

    gpu: str
    note: str = ""


def identify(device: Device, table: Gpus) -> Product:
    """The product of a device.

    Raises:
        BadInput: its name is cut off and fits products of different compute capability.
    """
    if device.cut_off:
        return _completed(device, table)
    if device.capability:
        try:
            resolve_gpu(device.name, table)
        except BadInput:
            note = f"{device.name} is not a known product; its compute capability is used"
            return Product(device.capability, note)
    return Product(device.name)


def _completed(device: Device, table: Gpus) -> Product:
    start = _compact(device.name.rstrip(". "))
    names = {_compact(spelling): name for spelling, name in table.aliases.items()}
    names |= {_compact(name): name for name in table.gpus}
    fitting = sorted({name for spelling, name in names.items() if spelling.startswith(start)})
    found = [table.gpus[name] for name in fitting if _holds(table.gpus[name], device.memory_mib)]
    if len(found) == 1:
        return Product(found[0].name)
    capabilities = {gpu.capability for gpu in found}
    candidates = " or ".join(gpu.name for gpu in found[:4]) or "no known product"
    advice = "nvidia-smi -q and nvidia-smi -L print names in full"
    if len(capabilities) == 1:
        note = f"'{device.name}' is cut off and may be {candidates}; {advice}"
        return Product(f"sm_{show(capabilities.pop()).replace('.', '')}", note)
    raise BadInput(
        f"the product name '{device.name}' is cut off and may be {candidates}",
        field="gpu",
        value=device.name,
        hint=f"{advice}; or state it: --pool gpu=...",
    )


def _compact(text: str) -> str:
    return normalise(text).replace("-", "")


def _holds(gpu: Gpu, memory_mib: int | None) -> bool:
    if gpu.memory_gb is None or memory_mib is None:
        return True
    return _USABLE[0] <= memory_mib / 1024 / gpu.memory_gb <= _USABLE[1]


def profile_of(part: Slice, device: Device, gpu: Gpu) -> str | None:
    """The MIG profile of a slice, None where the output does not tell two apart.

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
