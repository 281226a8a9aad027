"""NVIDIA's packages for Debian, Ubuntu and the RPM distributions.

Source: the names and versions of NVIDIA's repositories below
https://developer.download.nvidia.com/compute/cuda/repos/:
``libcudnn9-cuda-12`` 9.1.0.70-1, ``libnccl2`` 2.21.5-1+cuda12.4, ``cuda-cudart-12-4`` 12.4.127-1,
``libcudnn8`` 8.9.7.29-1.cuda12.2 (RPM).
"""

from __future__ import annotations

import re

from compatgate.core.components import resolve_component
from compatgate.core.versions import parse_version
from compatgate.discovery.observed import Observation
from compatgate.errors import BadInput

_TOOLKIT = re.compile(
    r"(?P<base>cuda-(?:cudart|runtime|toolkit)|libcublas)-\d{1,2}-\d{1,2}|nvidia-cuda-toolkit"
)
_COMPAT = re.compile(r"cuda-compat-(?P<major>\d{1,2})-(?P<minor>\d{1,2})")
_LIBRARY = re.compile(r"lib(?:cudnn|nccl|nvinfer|cudart|cublas)\d*(?:-cuda-\d{1,2})?")
_BUILT_FOR = re.compile(r"[+.~\-](?P<label>cuda\d{1,2}\.\d{1,2})")
_COMPONENTS = {"libcublas": "cublas"}


def observe(name: str, version: str, origin: str, left: list[str]) -> list[Observation]:
    """The component that a system package is; none for most packages.

    Args:
        name: of the package.
        version: with its revision, as the package manager writes it.
        origin: where it was seen.
        left: receives what cannot be read.
    """
    text = name.lower()
    if match := _COMPAT.fullmatch(text):
        compat = f"{match['major']}.{match['minor']}"
        return [Observation("cuda-compat", compat, origin, "metadata")]
    label = ""
    if match := _TOOLKIT.fullmatch(text):
        component = _COMPONENTS.get(match["base"], "cuda")
    elif _LIBRARY.fullmatch(text):
        resolved = resolve_component(text)
        component = resolved.component.name
        if resolved.cuda and component != "cuda":
            label = f"cu{''.join(map(str, resolved.cuda))}"
    else:
        return []
    if not version:
        left.append(f"{component}: no version is stated ({origin})")
        return []
    upstream = upstream_version(version)
    if (built := _BUILT_FOR.search(version)) and component not in ("cuda", "cublas"):
        label = built["label"]
    shown = f"{upstream}+{label}" if label else upstream
    try:
        parse_version(component, shown)
    except BadInput as error:
        left.append(f"{origin}: {error.problem}")
        return []
    return [Observation(component, shown, origin, "metadata")]


def upstream_version(version: str) -> str:
    """A package's version without its epoch and revision: ``9.1.0.70`` of ``1:9.1.0.70-1``."""
    without_epoch = version.partition(":")[2] or version
    return re.split(r"[-+~]", without_epoch, maxsplit=1)[0]
