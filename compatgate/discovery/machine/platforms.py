"""Tell the platform of a machine by its firmware's texts, its instance type and its GPUs."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase

from msgspec import Struct

from compatgate.core.facts import Facts
from compatgate.core.facts.machines import Condition
from compatgate.core.gpus import resolve_gpu
from compatgate.errors import BadInput


class MachineTexts(Struct, frozen=True):
    """The statements of a machine about itself; empty: not stated.

    Attributes:
        vendor: DMI system vendor.
        product: DMI product name, or the model of the device tree.
        asset_tag: DMI chassis asset tag, by which some clouds mark their machines.
        instance_type: label ``node.kubernetes.io/instance-type``.
    """

    vendor: str = ""
    product: str = ""
    asset_tag: str = ""
    instance_type: str = ""

    @property
    def is_empty(self) -> bool:
        """Return whether nothing is known."""
        return not any((self.vendor, self.product, self.asset_tag, self.instance_type))


def recognise_platform(texts: MachineTexts, gpus: Iterable[str], facts: Facts) -> str | None:
    """Return the platform of a machine; None where no record of the facts fits.

    Args:
        texts: what the machine says of itself.
        gpus: its GPUs in any spelling.
        facts: the table of machines, and GPUs.
    """
    if texts.is_empty:
        return None
    names = {name for gpu in gpus if (name := _gpu_name(gpu, facts))}
    said = {name: _clean(getattr(texts, name)) for name in texts.__struct_fields__}
    for machine in facts.platform_machines.machines:
        if any(_fits(condition, said, names) for condition in machine.recognise):
            return machine.platform
    return None


def _fits(condition: Condition, said: dict[str, str], gpus: Collection[str]) -> bool:
    patterns = {name: getattr(condition, name) for name in said}
    return (not condition.gpus or any(gpu in gpus for gpu in condition.gpus)) and all(
        any(fnmatchcase(said[name], pattern) for pattern in wanted)
        for name, wanted in patterns.items()
        if wanted
    )


def _clean(text: str) -> str:
    return re.sub(r"[\s_]+", "-", text.strip()).lower()


def _gpu_name(gpu: str, facts: Facts) -> str | None:
    try:
        return resolve_gpu(gpu, facts.gpus).name
    except BadInput:
        return None
