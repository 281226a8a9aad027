"""Build the table of machines from ``platform_machines.yaml``."""

from __future__ import annotations

from compatgate.catalog.build.values import Record, record_source
from compatgate.core.facts.machines import Machine, PlatformMachines

_PATTERNS = ("instance_type", "product", "vendor", "asset_tag")


def platform_machines(document: Record) -> PlatformMachines:
    """Build the machines, in the order of the file."""
    return PlatformMachines(tuple(map(_machine, document["machines"])))


def _machine(record: Record) -> Machine:
    patterns = {name: tuple(record.get(name, ())) for name in _PATTERNS}
    return Machine(
        record["platform"], record_source(record), gpus=tuple(record.get("gpus", ())), **patterns
    )
