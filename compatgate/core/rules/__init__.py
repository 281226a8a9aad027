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
    placement,
    waived,
)
from compatgate.core.rules.base import Rule

RULES: tuple[Rule, ...] = (
    driver_cuda.driver_too_old,
    driver_cuda.minor_compat_limits,
    forward.forward_compat,
    driver_branch.driver_branch_eol,
    driver_branch.driver_gpu,
    mig.mig_driver,
    gpu_code.no_kernel_image,
    gpu_code.ptx_toolchain,
    gpu_code.toolkit_arch,
    cudnn.cudnn_cuda,
    cudnn.cudnn_gpu,
    cudnn.cudnn_driver,
    framework_cuda.framework_cuda,
    framework_pins.framework_cudnn,
    framework_pins.framework_nccl,
    framework_python.framework_python,
    framework_arch.framework_arch,
    framework_pins.framework_framework,
    framework_driver.framework_driver,
    nccl.nccl_cuda,
    nccl.nccl_gpu,
    image.require_cuda,
    known_issue.known_issue,
    matrix.not_blessed,
    matrix.revoked,
    matrix.deprecated,
    canary.canary_missing,
    canary.canary_stale,
    canary.canary_failed,
    waived.waived,
    waived.exempted,
    placement.target_contradicted,
    placement.no_pool_for_request,
    placement.some_pools,
    incomplete.incomplete,
    incomplete.witness_conflict,
)

BY_ID: dict[str, Rule] = {rule.id: rule for rule in RULES}
BY_NAME: dict[str, Rule] = {rule.name: rule for rule in RULES}
