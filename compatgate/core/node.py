"""Read what the nodes of a pool have below the containers: modules, services, tools, settings.

A pool states them as ``node: {kernel-modules: open, fabric-manager: 580.95.05}``. Only names of
`NODE_COMPONENTS` are known, because a rule, a fact or the drift of nodes speaks of each.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

from msgspec import Struct

from compatgate.core.components import MAX_NAME_LENGTH, check_length
from compatgate.core.performance import near_names
from compatgate.core.versions import Version, make_version
from compatgate.errors import BadInput

Sharing = Literal["exclusive", "mps", "time-slicing"]
"""The ways in which containers share a GPU of the pool."""


class NodeComponent(Struct, frozen=True):
    """A part or a setting of a node."""

    name: str
    title: str
    example: str  # a value as one writes it
    choices: tuple[str, ...] = ()  # the values that it can have; empty: a version or a text
    versioned: bool = True  # whether values are versions, which compare by their numbers


def _version(name: str, title: str, example: str) -> NodeComponent:
    return NodeComponent(name, title, example)


def _text(name: str, title: str, example: str) -> NodeComponent:
    return NodeComponent(name, title, example, versioned=False)


def _choice(name: str, title: str, *choices: str) -> NodeComponent:
    return NodeComponent(name, title, choices[0], choices, versioned=False)


NODE_COMPONENTS: Mapping[str, NodeComponent] = {
    one.name: one
    for one in (
        _choice("kernel-modules", "NVIDIA kernel modules", "open", "proprietary", "nouveau"),
        _choice("gsp-firmware", "GSP firmware", "on", "off"),
        _version("fabric-manager", "Fabric Manager", "580.95.05"),
        _version("imex", "IMEX service", "580.95.05"),
        _version("nvlsm", "NVLink Subnet Manager", "2025.03.1"),
        _version("container-toolkit", "NVIDIA Container Toolkit", "1.17.8"),
        _choice("container-mode", "mode of the container runtime", "cdi", "legacy", "csv"),
        _version("dcgm", "DCGM", "4.2.3"),
        _version("gpu-operator", "GPU Operator", "25.3.0"),
        _version("kernel", "Linux kernel", "6.8.0-45-generic"),
        _text("distribution", "Linux distribution", "ubuntu-24.04"),
        _choice("secure-boot", "Secure Boot", "on", "off"),
        _choice("peer-memory", "peer memory for RDMA", "dma-buf", "nvidia-peermem", "none"),
        _version("ofed", "MLNX_OFED or DOCA-OFED", "24.10-0.7.0.0"),
        _version("efa", "EFA installer", "1.38.0"),
        _text("vbios", "VBIOS", "96.00.89.00.01"),
        _choice("persistence", "persistence mode", "on", "off"),
        _choice("iommu", "IOMMU", "on", "off", "passthrough"),
        _choice("acs", "PCIe Access Control Services", "on", "off"),
        _version("l4t", "Jetson Linux (L4T)", "36.4.3"),
        _version("jetpack", "JetPack", "6.2"),
        _version("vgpu-manager", "vGPU manager on the host", "570.158.02"),
    )
}
"""The parts of a node that can be stated, by name."""

_VERSION = re.compile(r"[vVrR]?(\d+(?:[.\-+_~]\w+)*)\+?")
_VALUE = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._:+~/-]*")
_PLATFORM = re.compile(r"[a-z0-9][a-z0-9.-]*(/[a-z0-9][a-z0-9.-]*)?")


def read_node(body: Any, path: str) -> dict[str, str]:
    """Read ``{"kernel-modules": "open", "kernel": "6.8.0-45-generic"}``, in canonical order."""
    if not isinstance(body, Mapping):
        hint = '{"kernel-modules": "open"}'
        raise BadInput("must be a JSON object", field=path, value=body, hint=hint)
    found = {name: read_node_value(name, value, f"{path}.{name}") for name, value in body.items()}
    return {name: found[name] for name in NODE_COMPONENTS if name in found}


def read_node_value(name: Any, value: Any, path: str) -> str:
    """Read one value of a node."""
    component = NODE_COMPONENTS.get(name)
    if component is None:
        near = near_names(str(name), NODE_COMPONENTS)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(NODE_COMPONENTS)}"
        raise BadInput("is not a part of a node", field=path, value=value, hint=hint)
    if isinstance(value, bool) and "on" in component.choices:  # YAML 1.1 reads on and off
        value = "on" if value else "off"
    if not isinstance(value, str) or not _VALUE.fullmatch(value.strip()):
        raise BadInput("must be text", field=path, value=value, hint=f"like {component.example}")
    text = value.strip()
    check_length(text, MAX_NAME_LENGTH, path)
    if component.choices and text.lower() not in component.choices:
        hint = f"one of {', '.join(component.choices)}"
        raise BadInput(f"{text!r} is not known", field=path, value=value, hint=hint)
    if component.versioned and not _VERSION.fullmatch(text):
        hint = f"like {component.example}"
        raise BadInput(f"{text!r} is not a version", field=path, value=value, hint=hint)
    return text.lower() if component.choices or name == "distribution" else text


def read_platform(value: Any, path: str) -> str:
    """Read the name of a platform: ``aws/p6e-gb200``, ``jetson/orin``, ``bare-metal``.

    Whether the facts know it is for rules to say.
    """
    text = value.strip().lower() if isinstance(value, str) else ""
    check_length(text, MAX_NAME_LENGTH, path)
    if not _PLATFORM.fullmatch(text):
        hint = "like bare-metal, aws/p6e-gb200 or jetson/orin"
        raise BadInput("must be the name of a platform", field=path, value=value, hint=hint)
    return text


def fits_declared(name: str, declared: str, seen: str) -> bool:
    """Return whether a part of a node is what a pool declares.

    A declaration may be shorter than what is seen: kernel 6.8 fits 6.8.0-45-generic, rhel-9 fits
    rhel-9.4. Versions compare by their numbers.
    """
    if declared == seen:
        return True
    if NODE_COMPONENTS[name].versioned:
        wanted, have = parse_node_version(declared), parse_node_version(seen)
        is_early = wanted.key[1], have.key[1]
        return have.parts[: len(wanted.parts)] == wanted.parts and is_early[0] == is_early[1]
    if name == "distribution":
        return seen.startswith((f"{declared}-", f"{declared}."))
    return declared.lower() == seen.lower()


@lru_cache(maxsize=4096)
def parse_node_version(text: str) -> Version:
    """Read a version of a node's part; its numbers compare, in order, up to the first word.

    ``6.8.0-45-generic`` is (6, 8, 0, 45), ``1.17.4~rc.1`` is a pre-release of 1.17.4.
    """
    numbers: list[int] = []
    match = _VERSION.fullmatch(text.strip())
    words = re.split(r"[.\-+_~]", match[1]) if match else []
    for word in words:
        if not word.isdigit():
            break
        numbers.append(int(word))
    is_early = "~" in text or bool(re.search(r"[-.](?:rc|alpha|beta)\b", text))
    return make_version(text, tuple(numbers) or (0,), prerelease=is_early)
