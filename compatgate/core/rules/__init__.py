"""Every rule of the gate, in one table; a rule's docstring is its documentation."""

from __future__ import annotations

from compatgate.core.rules import (
    canary,
    cudnn,
    driver_branch,
    driver_cuda,
    forward,
    framework_arch,
    framework_cuda,
    framework_driver,
    framework_pins,
    framework_python,
    gpu_code,
    image,
    incomplete,
    known_issue,
    matrix,
    mig,
    nccl,
    packages,
    placement,
    waived,
)
from compatgate.core.rules.base import Rule

_FAMILIES = (
    driver_cuda,
    forward,
    driver_branch,
    mig,
    gpu_code,
    cudnn,
    framework_cuda,
    framework_pins,
    framework_python,
    framework_arch,
    framework_driver,
    packages,
    nccl,
    image,
    known_issue,
    matrix,
    canary,
    waived,
    placement,
    incomplete,
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
