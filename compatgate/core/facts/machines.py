"""Hold the table that tells machines by what their firmware and labels print."""

from __future__ import annotations

from msgspec import Struct

from compatgate.core.facts.nvidia import Source


class Condition(Struct, frozen=True):
    """Patterns of machines; every list that is not empty must fit.

    Attributes:
        instance_type: of the label ``node.kubernetes.io/instance-type``.
        product: DMI product names, and models of the device tree.
        vendor: DMI system vendors.
        asset_tag: DMI chassis asset tags.
        gpus: one of these must be a GPU of the machine, by canonical name.
    """

    instance_type: tuple[str, ...] = ()
    product: tuple[str, ...] = ()
    vendor: tuple[str, ...] = ()
    asset_tag: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()


class Machine(Struct, frozen=True):
    """The machines of one platform.

    Attributes:
        platform: as pools state it.
        recognise: conditions, one of which must fit.
    """

    platform: str
    recognise: tuple[Condition, ...]
    source: Source


class PlatformMachines(Struct, frozen=True):
    """Table ``platform_machines``; the first platform that fits decides."""

    machines: tuple[Machine, ...]
