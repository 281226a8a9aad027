"""List every rule of the gate in one table; a rule's docstring is its documentation."""

from __future__ import annotations

from compatgate.core.rule import Rule
from compatgate.core.rules import (
    building,
    caveats,
    driver,
    framework_builds,
    framework_pins,
    gpu,
    jetson,
    libraries,
    matrix,
    node,
    node_host,
    node_tools,
    packages,
    platform,
    sharing,
    vgpu,
    vgpu_types,
)

_FAMILIES = (
    driver,
    gpu,
    building,
    platform,
    jetson,
    node,
    node_tools,
    node_host,
    libraries,
    framework_builds,
    framework_pins,
    packages,
    matrix,
    caveats,
    vgpu,
    vgpu_types,
    sharing,
)

RULES: tuple[Rule, ...] = tuple(
    sorted(
        (one for family in _FAMILIES for one in vars(family).values() if isinstance(one, Rule)),
        key=lambda one: one.id,
    )
)
"""Every rule of these modules, by id: a function with ``@rule`` in one of them is in force."""

BY_ID: dict[str, Rule] = {rule.id: rule for rule in RULES}
BY_NAME: dict[str, Rule] = {rule.name: rule for rule in RULES}
