"""Read the GPU Operator's objects: the driver that they declare for each node.

Sources: NVIDIA/gpu-operator ``api/nvidia/v1/clusterpolicy_types.go`` and
``api/nvidia/v1alpha1/nvidiadriver_types.go`` (fields, defaults, how an image's path is made of
repository, name and version), NVIDIA GPU Operator documentation, "GPU Driver CRD" (selectors of
several NVIDIADriver objects must not overlap).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from compatgate.discovery.integrations.objects import Body, is_true, items, part, text_of

CLUSTER_POLICY = "ClusterPolicy"
NVIDIA_DRIVER = "NVIDIADriver"
_EVERY_GPU_NODE = {"nvidia.com/gpu.present": "true"}
_VERSION = re.compile(r"(\d{3,4}\.\d{1,3}(?:\.\d{1,3})?)(?:-[A-Za-z][\w.-]*)?", re.ASCII)
_DIGEST = re.compile(r"sha256:[0-9a-f]+", re.ASCII)


class DeclaredDriver(Struct, frozen=True):
    """A driver that the operator installs on some nodes.

    Attributes:
        origin: the object, ``NVIDIADriver h100``.
        version: None where it is not known; ``why`` says why.
        selector: labels of the driver's nodes.
        affinity: required node affinity, as Kubernetes writes it.
        note: a remark on the driver; may be empty.
    """

    origin: str
    name: str
    version: str | None = None
    why: str = ""
    selector: dict[str, str] = {}
    affinity: tuple[Body, ...] = ()
    note: str = ""

    def takes(self, labels: Mapping[str, str]) -> bool:
        """Return whether the driver is for a node with these labels."""
        if any(labels.get(key) != value for key, value in self.selector.items()):
            return False
        return not self.affinity or any(_term(term, labels) for term in self.affinity)


class Operator(Struct, frozen=True):
    """The drivers that all objects together declare."""

    drivers: tuple[DeclaredDriver, ...] = ()
    notes: tuple[str, ...] = ()

    def for_node(self, labels: Mapping[str, str]) -> DeclaredDriver | None:
        """Return the driver of a node; an unknown version where several claim the node, or None."""
        found = [one for one in self.drivers if one.takes(labels)]
        if len(found) < 2:
            return found[0] if found else None
        names = " and ".join(one.origin for one in found)
        why = f"{names} both select the node, which the operator does not accept"
        return DeclaredDriver(names, found[0].name, why=why)


def is_operator(body: Body) -> bool:
    """Return whether an object belongs to the operator."""
    group = text_of(body.get("apiVersion")).partition("/")[0]
    return group == "nvidia.com" and body.get("kind") in (CLUSTER_POLICY, NVIDIA_DRIVER)


def read_operator(bodies: Iterable[Body]) -> Operator:
    """Read ClusterPolicy and NVIDIADriver objects."""
    objects = list(bodies)
    policies = [one for one in objects if one.get("kind") == CLUSTER_POLICY]
    drivers = [_driver_object(one) for one in objects if one.get("kind") == NVIDIA_DRIVER]
    notes: list[str] = []
    if len(policies) > 1:
        notes.append("there are several ClusterPolicy objects; the operator follows one of them")
    stated = [_policy(one) for one in policies]
    if not policies:
        return Operator(tuple(d for d in drivers if d), tuple(notes))
    by_objects = any(is_true(part(one, "spec", "driver").get("useNvidiaDriverCRD"))
                     for one in policies)  # fmt: skip
    if not by_objects:
        if any(drivers):
            notes.append(
                "driver.useNvidiaDriverCRD of the ClusterPolicy is not true: the operator does not"
                " follow the NVIDIADriver objects"
            )
        return Operator(_agreed_driver(stated), tuple(notes))
    if not any(drivers):
        notes.append(
            "the ClusterPolicy leaves the driver to NVIDIADriver objects, and none is given: "
            "kubectl get nvidiadrivers -o yaml"
        )
    return Operator(tuple(d for d in drivers if d), tuple(notes))


def _agreed_driver(stated: Sequence[DeclaredDriver]) -> tuple[DeclaredDriver, ...]:
    """Return the driver of the ClusterPolicy objects; not known where they differ."""
    first = stated[0]
    if len({one.version for one in stated}) == 1:
        return (first,)
    names = " and ".join(one.origin for one in stated)
    why = f"{names} name different drivers, and the operator follows one of them"
    return (DeclaredDriver(names, first.name, why=why),)


def driver_of_settings(driver: Body, origin: str, name: str) -> DeclaredDriver:
    """Return the ``driver`` of a ClusterPolicy, or of the operator's Helm values."""
    if not is_true(driver.get("enabled"), default=True):
        return DeclaredDriver(
            origin, name, why=f"{origin}: the driver is installed by something else"
        )
    if is_true(driver.get("useNvidiaDriverCRD")):
        return DeclaredDriver(
            origin, name, why=f"{origin} leaves the driver to NVIDIADriver objects"
        )
    version, why = _version(driver, origin, "the operator installs its default version")
    return DeclaredDriver(origin, name, version, why)


def _policy(body: Body) -> DeclaredDriver:
    name = text_of(part(body, "metadata").get("name")) or "cluster-policy"
    return driver_of_settings(part(body, "spec", "driver"), f"{CLUSTER_POLICY} {name}", name)


def _driver_object(body: Body) -> DeclaredDriver | None:
    name = text_of(part(body, "metadata").get("name")) or "nvidia-driver"
    spec, origin = part(body, "spec"), f"{NVIDIA_DRIVER} {name}"
    kind = text_of(spec.get("driverType")) or "gpu"
    if kind == "vgpu-host-manager":
        return None  # for hypervisors, which run no containers
    stated = isinstance(spec.get("nodeSelector"), dict)
    selector = {str(k): text_of(v) for k, v in part(spec, "nodeSelector").items()}
    required = part(spec, "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    version, why = _version(spec, origin, "it names no version")
    state = text_of(part(body, "status").get("state"))
    return DeclaredDriver(
        origin,
        name,
        version,
        why,
        selector if stated else _EVERY_GPU_NODE,
        tuple(items(required, "nodeSelectorTerms")),
        f"{origin} is {state}" if state in ("notReady", "ignored", "disabled") else "",
    )


def _version(driver: Body, origin: str, without: str) -> tuple[str | None, str]:
    """Return the version or why it is not known; the image's tag is the last source."""
    text = text_of(driver.get("version"))
    if not text:
        tail = text_of(driver.get("image")).rpartition("/")[2]
        text = tail.partition("@")[2] or tail.partition(":")[2]
    if not text:
        return None, f"{origin}: {without}, which these objects do not show"
    if _DIGEST.fullmatch(text):
        return None, f"{origin}: the driver's image is given by its digest, {text[:19]}..."
    if match := _VERSION.fullmatch(text):
        return match[1], ""
    if is_true(driver.get("usePrecompiled")) and text.isdecimal():
        return None, f"{origin}: precompiled driver of branch {text}; the image's tag decides"
    return None, f"{origin}: {text[:60]!r} is not a driver's version"


def _term(term: Any, labels: Mapping[str, str]) -> bool:
    """Return whether a node selector term matches; an empty one matches nothing.

    Source: Kubernetes API reference, NodeSelectorTerm and NodeSelectorRequirement.
    """
    expressions = items(term, "matchExpressions")
    if not expressions or items(term, "matchFields"):
        return False  # fields select single nodes by name, which labels cannot decide
    return all(_expression(one, labels) for one in expressions)


def _expression(one: Body, labels: Mapping[str, str]) -> bool:
    key, operator = text_of(one.get("key")), text_of(one.get("operator"))
    listed = one.get("values")
    values = [text_of(value) for value in listed] if isinstance(listed, list) else []
    has = labels.get(key)
    if operator == "In":
        return has in values
    if operator == "NotIn":
        return has not in values
    if operator in ("Exists", "DoesNotExist"):
        return (has is not None) == (operator == "Exists")
    numbers = [has or "", *values]
    if operator not in ("Gt", "Lt") or len(numbers) != 2 or not all(map(str.isdecimal, numbers)):
        return False
    here, bound = map(int, numbers)
    return here > bound if operator == "Gt" else here < bound
