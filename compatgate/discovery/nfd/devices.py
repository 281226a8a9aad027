"""PCI device ids of NVIDIA's GPUs, from ``matrix/nfd/devices.yaml``."""

from __future__ import annotations

import os
from functools import cache

import msgspec
from msgspec import Struct

from compatgate.core.arch import Capability, parse_capability
from compatgate.resources import locate

VENDOR = "10de"


class Row(Struct, frozen=True):
    """Devices that are one product.

    Attributes:
        gpu: how the product's names begin; empty where the facts have none.
    """

    capability: str
    ids: tuple[str, ...]
    gpu: str = ""


class Devices(Struct, frozen=True):
    """All rows."""

    devices: tuple[Row, ...]

    def capabilities(self) -> dict[str, Capability]:
        """Capability of each device, ascending by id."""
        pairs = ((i, parse_capability(row.capability)) for row in self.devices for i in row.ids)
        return dict(sorted(pairs))

    def of_product(self, name: str) -> frozenset[str]:
        """The ids that a product may have; empty where none is known."""
        rows = (
            r for r in self.devices if r.gpu and (name == r.gpu or name.startswith(f"{r.gpu}-"))
        )
        return frozenset(i for row in rows for i in row.ids)


@cache
def load_devices() -> Devices:
    """The table that travels with the program."""
    import yaml

    with open(os.path.join(locate("matrix"), "nfd", "devices.yaml"), encoding="utf-8") as file:
        return msgspec.convert(yaml.safe_load(file), Devices)
