"""Read objects of Kubernetes, and the drivers that the GPU Operator's objects declare.

Objects are YAML or JSON, bounded, with scalars as text.

Sources: NVIDIA/gpu-operator ``api/nvidia/v1/clusterpolicy_types.go`` and
``api/nvidia/v1alpha1/nvidiadriver_types.go`` (fields, defaults, how an image's path is made of
repository, name and version), NVIDIA GPU Operator documentation, "GPU Driver CRD" (selectors of
several NVIDIADriver objects must not overlap).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from compatgate.discovery.node_labels import load_plain_yaml
from compatgate.errors import BadInput, quote_error
from compatgate.strict_json import DECODE_ERRORS

Body = dict[str, Any]
LARGEST_YAML_OBJECTS = 32 * 1024 * 1024
"""Bytes of the largest accepted YAML file."""
CLUSTER_POLICY = "ClusterPolicy"
NVIDIA_DRIVER = "NVIDIADriver"
_EVERY_GPU_NODE = {"nvidia.com/gpu.present": "true"}
_VERSION = re.compile(r"(\d{3,4}\.\d{1,3}(?:\.\d{1,3})?)(?:-[A-Za-z][\w.-]*)?", re.ASCII)
_DIGEST = re.compile(r"sha256:[0-9a-f]+", re.ASCII)
_OBJECTS_HINT = (
    "give ClusterPolicy and NVIDIADriver objects, or nodes, as kubectl get -o yaml or -o json"
    " prints them"
)


def read_objects(text: str, origin: str) -> tuple[Body, ...]:
    """Return the objects of a text; each item of a list is one object."""
    clean = text.lstrip("\ufeff").strip()
    if not clean:
        raise BadInput("is empty", field=origin, hint=_OBJECTS_HINT)
    if clean.startswith(("{", "[")):
        try:
            documents = [msgspec.json.decode(clean)]
        except DECODE_ERRORS as error:
            what = f"is not JSON: {quote_error(error)}"
            raise BadInput(what, field=origin, hint=_OBJECTS_HINT) from None
    else:
        documents = _parse_yaml(clean, origin)
    objects = tuple(one for document in documents for one in _flatten(document, origin))
    if not objects:
        raise BadInput("contains no objects", field=origin, hint=_OBJECTS_HINT)
    return objects


def _parse_yaml(text: str, origin: str) -> list[Any]:
    import yaml

    if len(text) > LARGEST_YAML_OBJECTS:
        raise BadInput("is too long for YAML", field=origin, hint="give JSON")
    try:
        return load_plain_yaml(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        where = quote_error(error)
        raise BadInput(f"is not YAML: {where}", field=origin, hint=_OBJECTS_HINT) from None


def _flatten(document: Any, origin: str) -> Iterator[Body]:
    if document in (None, ""):
        return
    if isinstance(document, list):
        for item in document:
            yield from _flatten(item, origin)
        return
    if not isinstance(document, dict):
        raise BadInput("is not an object", field=origin, hint=_OBJECTS_HINT)
    if str(document.get("kind", "")).endswith("List") and isinstance(document.get("items"), list):
        for item in document["items"]:
            yield from _flatten(item, origin)
        return
    yield document


def nested_object(body: Any, *path: str) -> Body:
    """Return a nested object; empty where the value is missing or no object."""
    for name in path:
        body = body.get(name) if isinstance(body, Mapping) else None
    return dict(body) if isinstance(body, Mapping) else {}


def scalar_text(value: Any) -> str:
    """Return a scalar as text; empty for other values."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value).strip() if isinstance(value, (str, int, float)) else ""


def read_flag(value: Any, *, default: bool = False) -> bool:
    """Return a flag that is written as a boolean or as text."""
    text = scalar_text(value).lower()
    return default if text in ("", "null", "~") else text == "true"


def list_objects(body: Any, name: str) -> list[Body]:
    """Return a list of objects without its other items."""
    value = body.get(name) if isinstance(body, Mapping) else None
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


class DeclaredDriver(Struct, frozen=True):
    """A driver that the operator installs on some nodes.

    Attributes:
        origin: the object, ``NVIDIADriver h100``.
        version: None where it is not known; ``why`` says why.
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
        return not self.affinity or any(_matches_term(term, labels) for term in self.affinity)


class Operator(Struct, frozen=True):
    """The drivers that all objects together declare."""

    drivers: tuple[DeclaredDriver, ...] = ()
    notes: tuple[str, ...] = ()

    def for_node(self, labels: Mapping[str, str]) -> DeclaredDriver | None:
        """Return the driver of a node; an unknown version where several claim the node, or None."""
        candidates = [one for one in self.drivers if one.takes(labels)]
        if len(candidates) < 2:
            return candidates[0] if candidates else None
        names = " and ".join(one.origin for one in candidates)
        why = f"{names} both select the node, which the operator does not accept"
        return DeclaredDriver(names, candidates[0].name, why=why)


def is_operator_object(body: Body) -> bool:
    """Return whether an object belongs to the operator."""
    group = scalar_text(body.get("apiVersion")).partition("/")[0]
    return group == "nvidia.com" and body.get("kind") in (CLUSTER_POLICY, NVIDIA_DRIVER)


def read_operator(bodies: Iterable[Body]) -> Operator:
    """Read ClusterPolicy and NVIDIADriver objects."""
    objects = list(bodies)
    policies = [one for one in objects if one.get("kind") == CLUSTER_POLICY]
    drivers = [_driver_object(one) for one in objects if one.get("kind") == NVIDIA_DRIVER]
    notes: list[str] = []
    if len(policies) > 1:
        notes.append("there are several ClusterPolicy objects; the operator follows one of them")
    stated = [_policy_name(one) for one in policies]
    if not policies:
        return Operator(tuple(d for d in drivers if d), tuple(notes))
    by_objects = any(read_flag(nested_object(one, "spec", "driver").get("useNvidiaDriverCRD"))
                     for one in policies)  # fmt: skip
    if not by_objects:
        if any(drivers):
            notes.append(
                "driver.useNvidiaDriverCRD of the ClusterPolicy is not true: the operator does not"
                " follow the NVIDIADriver objects"
            )
        first = stated[0]
        if len({one.version for one in stated}) == 1:
            driver = (first,)
        else:
            names = " and ".join(one.origin for one in stated)
            why = f"{names} name different drivers, and the operator follows one of them"
            driver = (DeclaredDriver(names, first.name, why=why),)
        return Operator(driver, tuple(notes))
    if not any(drivers):
        notes.append(
            "the ClusterPolicy leaves the driver to NVIDIADriver objects, and none is given: "
            "kubectl get nvidiadrivers -o yaml"
        )
    return Operator(tuple(d for d in drivers if d), tuple(notes))


def read_driver_settings(driver: Body, origin: str, name: str) -> DeclaredDriver:
    """Return the ``driver`` of a ClusterPolicy, or of the operator's Helm values."""
    if not read_flag(driver.get("enabled"), default=True):
        return DeclaredDriver(
            origin, name, why=f"{origin}: the driver is installed by something else"
        )
    if read_flag(driver.get("useNvidiaDriverCRD")):
        return DeclaredDriver(
            origin, name, why=f"{origin} leaves the driver to NVIDIADriver objects"
        )
    version, why = _driver_version(driver, origin, "the operator installs its default version")
    return DeclaredDriver(origin, name, version, why)


def _policy_name(body: Body) -> DeclaredDriver:
    name = scalar_text(nested_object(body, "metadata").get("name")) or "cluster-policy"
    return read_driver_settings(
        nested_object(body, "spec", "driver"), f"{CLUSTER_POLICY} {name}", name
    )


def _driver_object(body: Body) -> DeclaredDriver | None:
    name = scalar_text(nested_object(body, "metadata").get("name")) or "nvidia-driver"
    spec, origin = nested_object(body, "spec"), f"{NVIDIA_DRIVER} {name}"
    kind = scalar_text(spec.get("driverType")) or "gpu"
    if kind == "vgpu-host-manager":
        return None  # for hypervisors, which run no containers
    stated = isinstance(spec.get("nodeSelector"), dict)
    selector = {str(k): scalar_text(v) for k, v in nested_object(spec, "nodeSelector").items()}
    required = nested_object(spec, "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    version, why = _driver_version(spec, origin, "it names no version")
    state = scalar_text(nested_object(body, "status").get("state"))
    return DeclaredDriver(
        origin,
        name,
        version,
        why,
        selector if stated else _EVERY_GPU_NODE,
        tuple(list_objects(required, "nodeSelectorTerms")),
        f"{origin} is {state}" if state in ("notReady", "ignored", "disabled") else "",
    )


def _driver_version(driver: Body, origin: str, without: str) -> tuple[str | None, str]:
    """Return the version or why it is not known; the image's tag is the last source."""
    text = scalar_text(driver.get("version"))
    if not text:
        tail = scalar_text(driver.get("image")).rpartition("/")[2]
        text = tail.partition("@")[2] or tail.partition(":")[2]
    if not text:
        return None, f"{origin}: {without}, which these objects do not show"
    if _DIGEST.fullmatch(text):
        return None, f"{origin}: the driver's image is given by its digest, {text[:19]}..."
    if match := _VERSION.fullmatch(text):
        return match[1], ""
    if read_flag(driver.get("usePrecompiled")) and text.isdecimal():
        return None, f"{origin}: precompiled driver of branch {text}; the image's tag decides"
    return None, f"{origin}: {text[:60]!r} is not a driver's version"


def _matches_term(term: Any, labels: Mapping[str, str]) -> bool:
    """Return whether a node selector term matches; an empty one matches nothing.

    Source: Kubernetes API reference, NodeSelectorTerm and NodeSelectorRequirement.
    """
    expressions = list_objects(term, "matchExpressions")
    if not expressions or list_objects(term, "matchFields"):
        return False  # fields select single nodes by name, which labels cannot decide
    return all(_matches_expression(one, labels) for one in expressions)


def _matches_expression(one: Body, labels: Mapping[str, str]) -> bool:
    key, operator = scalar_text(one.get("key")), scalar_text(one.get("operator"))
    listed = one.get("values")
    values = [scalar_text(value) for value in listed] if isinstance(listed, list) else []
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
