"""From any spelling of a GPU to one SKU, or to a family whose SKUs agree; never a guess.

Spellings come from nvidia-smi and NVML (``NVIDIA H100 80GB HBM3``), from the node labels of GPU
Feature Discovery (``NVIDIA-A100-SXM4-40GB-MIG-1g.5gb-SHARED``), from people (``a100 80 GB``) and
from builders that know only a compute capability (``sm_87``). The names themselves are data, in
``matrix/facts/gpus.yaml``.
"""

from compatgate.core.gpus.names import normalise
from compatgate.core.gpus.resolve import includes, resolve_gpu

__all__ = ["includes", "normalise", "resolve_gpu"]
