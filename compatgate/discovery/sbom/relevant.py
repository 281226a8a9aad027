"""A first look at a part: most of an image's thousands of packages are no part of a GPU stack."""

from __future__ import annotations

import re

_WORDS = re.compile(
    r"pkg:(?:pypi|conda)/|cuda|cudnn|cudart|nccl|cublas|nvinfer|tensorrt|python|torch|tensorflow|jax|onnxruntime|vllm"
    r"|cupy|transformer|flash",
    re.IGNORECASE,
)


def may_be_component(*texts: object) -> bool:
    """Tell whether a name or a package URL could be one of a component or GPU package."""
    return any(isinstance(text, str) and _WORDS.search(text) for text in texts)
