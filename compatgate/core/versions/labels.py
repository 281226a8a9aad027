"""What a build was made for, in labels and tags: ``cu121``, ``cuda12.4``, ``rocm6.2``."""

from __future__ import annotations

import re

from compatgate.core.versions.version import CudaBuild

_LOCAL_CUDA = re.compile(
    r"(?:^|[.\-_])(?:cu(?P<tag>\d{2,4})|cuda-?(?P<dotted>\d{1,2}(?:\.\d{1,2})?))"
)


def built_for(local: str) -> CudaBuild | None:
    """The CUDA in a local version: ``cu121``, ``cu12``, ``cuda12.4``, ``nv25.5.cu129``."""
    match = _LOCAL_CUDA.search(local)
    if not match:
        return None
    if match["tag"]:
        return tag_parts(match["tag"])
    return tuple(int(p) for p in match["dotted"].split("."))


def tag_parts(digits: str) -> tuple[int, ...]:
    """``121`` is 12.1, ``12`` is 12, ``92`` is 9.2, ``1210`` would be 12.10."""
    if len(digits) == 2:
        number = int(digits)
        return (number,) if number < 50 else (number // 10, number % 10)
    return (int(digits[:2]), int(digits[2:]))


_OTHER_GPUS = {"rocm": "AMD", "xpu": "Intel"}


def gpus_of_label(label: str) -> str:
    """Return whose GPUs a build's label names, where those are not NVIDIA's (``rocm6.2``)."""
    return next((gpus for word, gpus in _OTHER_GPUS.items() if label.startswith(word)), "")
