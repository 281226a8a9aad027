"""Check the table of machines: known GPUs, and no pattern that an earlier one hides."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

from compatgate.catalog.checks import Check, Context, Problem


def machine_gpus(context: Context) -> Iterator[Problem]:
    """Check that the GPUs of machines are known products, by canonical name."""
    for machine in context.facts.platform_machines.machines:
        for name in (gpu for condition in machine.recognise for gpu in condition.gpus):
            if name not in context.facts.gpus.gpus:
                what = f"no product in gpus is named {name}"
                yield Problem("machine-gpus", f"platform_machines {machine.platform}", what)


def machine_order(context: Context) -> Iterator[Problem]:
    """Check that every pattern of an instance type can decide: no earlier one fits all of it."""
    seen: list[str] = []
    for machine in context.facts.platform_machines.machines:
        patterns = [one for condition in machine.recognise for one in condition.instance_type]
        for pattern in patterns:
            if hidden := next((one for one in seen if fnmatchcase(pattern, one)), None):
                what = f"{pattern} never decides: {hidden} comes first"
                yield Problem("machine-order", f"platform_machines {machine.platform}", what)
        seen += patterns


MACHINE_CHECKS: tuple[Check, ...] = (machine_gpus, machine_order)
