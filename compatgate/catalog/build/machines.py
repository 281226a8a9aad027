"""Build the table of machines from ``platform_machines.yaml``."""

from __future__ import annotations

from compatgate.catalog.build.values import Record, record_source
from compatgate.core.facts.machines import Condition, Machine, PlatformMachines


def platform_machines(document: Record) -> PlatformMachines:
    """Build the machines, in the order of the file."""
    return PlatformMachines(tuple(map(_machine, document["machines"])))


def _machine(record: Record) -> Machine:
    conditions = (
        Condition(**{name: tuple(patterns) for name, patterns in condition.items()})
        for condition in record["recognise"]
    )
    return Machine(record["platform"], tuple(conditions), record_source(record))
