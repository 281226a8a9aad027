"""What a container of a pod shows of GPUs that it gets past the scheduler.

Source: NVIDIA/nvidia-container-toolkit ``internal/config/image/cuda_image.go``. NVIDIA's runtime
hands out what ``/dev/null``, mounted below a certain folder, names; else what the variable
``NVIDIA_VISIBLE_DEVICES`` names, a pod's before the image's; else, to an image with
``CUDA_VERSION`` and without ``NVIDIA_REQUIRE_CUDA``, everything. A node may forbid either way.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Any

from compatgate.gate.admission.kinds import Kinds
from compatgate.gate.admission.loose import items, mapping, text

FOLDER = "/var/run/nvidia-container-devices"
_NOT_GPUS = "imex/"
_NULL = "/dev/null"


def mounted(container: Mapping[str, Any], spec: Mapping[str, Any]) -> str:
    """The mount by which a container asks NVIDIA's runtime for GPUs; empty: there is none.

    Args:
        container: of the pod.
        spec: of the pod, whose volumes say what is mounted.
    """
    places = [text(mapping(m).get("mountPath")) for m in items(container.get("volumeMounts"))]
    if not any("nvidia-container-devices" in place for place in places):
        return ""
    nulls = {text(v.get("name")) for v in map(mapping, items(spec.get("volumes"))) if _is_null(v)}
    for mount in map(mapping, items(container.get("volumeMounts"))):
        place = _clean(text(mount.get("mountPath")))
        device = place.removeprefix(f"{FOLDER}/")
        if device != place and not device.startswith(_NOT_GPUS) and mount.get("name") in nulls:
            return place
    return ""


def runtime_class(spec: Mapping[str, Any], kinds: Kinds) -> str:
    """The runtime class of a pod, where it is one of those that hand out GPUs; else empty."""
    name = text(spec.get("runtimeClassName"))
    return name if name and kinds.hands_out(name) else ""


def _is_null(volume: Mapping[str, Any]) -> bool:
    return _clean(text(mapping(volume.get("hostPath")).get("path"))) == _NULL


def _clean(path: str) -> str:
    return "/" + posixpath.normpath(path).lstrip("/") if path else ""
