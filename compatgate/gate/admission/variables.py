"""Variables that a pod sets for a container: what they change about the image's stack.

Source: NVIDIA/nvidia-container-toolkit ``internal/config/image/cuda_image.go``: the runtime reads
requirements from the container's environment, where a pod's variable replaces the image's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from compatgate.gate.admission.loose import items, mapping, text

VISIBLE = "NVIDIA_VISIBLE_DEVICES"
_REQUIRE, _MAIN = "NVIDIA_REQUIRE_", "NVIDIA_REQUIRE_CUDA"
_DISABLE = "NVIDIA_DISABLE_REQUIRE"
_JETPACK = "NVIDIA_REQUIRE_JETPACK"
_LIBRARIES = "LD_LIBRARY_PATH"
_TRUE = ("1", "t", "T", "TRUE", "true", "True")
_NO_DEVICES = ("", "void", "none")


class Changes(Struct, frozen=True):
    """What the variables mean for a question.

    Attributes:
        set: as the question's ``set``.
        open: what they leave unknown, in sentences.
        unread: what was not looked at, in sentences.
        asks: they ask the container runtime for GPUs.
        declines: they ask it for none, whatever the image asks for.
    """

    set: dict[str, Any] = {}
    open: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    asks: bool = False
    declines: bool = False


def read_variables(container: Mapping[str, Any]) -> Changes:
    """Read the variables of a container of a pod spec; of two of one name the last counts."""
    env = {text(item.get("name")): item for item in map(mapping, items(container.get("env")))}
    changed: dict[str, Any] = {}
    left: list[str] = []
    unread: list[str] = []
    required: dict[str, str] = {}
    for name, item in env.items():
        ours = name in (_DISABLE, _LIBRARIES) or name.startswith(_REQUIRE)
        if not ours or name.startswith(_JETPACK):
            continue
        if name == _LIBRARIES:
            unread.append(f"{name} is set in the pod: its folders were not looked into")
        elif "valueFrom" in item:
            left.append(f"{name} comes from elsewhere (valueFrom), and is not known")
        elif name == _DISABLE:
            changed["disable-require"] = text(item.get("value")) in _TRUE
        else:
            required[name] = text(item.get("value"))
    changed |= _required(required, left)
    if items(container.get("envFrom")):
        unread.append("variables of config maps and secrets (envFrom) were not read")
    asks = _asks(env.get(VISIBLE))
    declines = VISIBLE in env and not asks
    return Changes(changed, tuple(left), tuple(unread), asks, declines)


def _required(required: Mapping[str, str], left: list[str]) -> dict[str, Any]:
    """Requirements in place of the image's; beside them, where its main one is not replaced."""
    if _MAIN not in required:
        left += [f"{name} is set in the pod, and was not checked" for name in required]
        return {}
    return {"require": [value for value in required.values() if value] or None}


def _asks(item: Mapping[str, Any] | None) -> bool:
    if item is None:
        return False
    return "valueFrom" in item or text(item.get("value")) not in _NO_DEVICES
