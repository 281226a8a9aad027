"""Changes that may mend a finding, smallest first. None is offered before it was evaluated."""

from compatgate.core.changes.cuda import add_sass, cuda_for_gpu, older_cuda
from compatgate.core.changes.drivers import (
    add_forward_compat,
    driver_for_gpu,
    newer_branches,
    raise_driver,
    supported_branch,
)
from compatgate.core.changes.frameworks import (
    build_with_code,
    follow_pin,
    other_build,
    other_python,
)
from compatgate.core.changes.libraries import other_cudnn, other_nccl
from compatgate.core.changes.matrix import nearest_entry

__all__ = [
    "add_forward_compat",
    "add_sass",
    "build_with_code",
    "cuda_for_gpu",
    "driver_for_gpu",
    "follow_pin",
    "nearest_entry",
    "newer_branches",
    "older_cuda",
    "other_build",
    "other_cudnn",
    "other_nccl",
    "other_python",
    "raise_driver",
    "supported_branch",
]
