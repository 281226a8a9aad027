"""A first look at a part: most of an image's thousands of packages are no components."""

from __future__ import annotations

import re

_WORDS = re.compile(
    r"cuda|cudnn|cudart|nccl|cublas|nvinfer|tensorrt|python|torch|tensorflow|jax|onnxruntime|vllm"
    r"|cupy|transformer|flash",
    re.IGNORECASE,
)


def may_be_component(*texts: object) -> bool:
    """Whether a name or a package URL could be one of a component."""
    return any(isinstance(text, str) and _WORDS.search(text) for text in texts)
