"""Draft a target from Kubernetes nodes and objects of the GPU Operator, for review and import.

Nodes state the actual stack, the operator the declared one. Objects are YAML or JSON, bounded, with
scalars as text.

Sources: NVIDIA/gpu-operator ``api/nvidia/v1/clusterpolicy_types.go`` and
``api/nvidia/v1alpha1/nvidiadriver_types.go`` (fields, defaults, how an image's path is made of
repository, name and version), NVIDIA GPU Operator documentation, "GPU Driver CRD" (selectors of
several NVIDIADriver objects must not overlap).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from compatgate.core.facts import Facts
from compatgate.core.facts.nvidia import Gpus
from compatgate.core.gpus import resolve_gpu
from compatgate.core.versions import parse_version
from compatgate.discovery.node_labels import Node, group_nodes, parse_yaml
from compatgate.discovery.observations import ObservedPool
from compatgate.documents.specs import API_VERSION, PoolSpec
from compatgate.errors import BadInput, quote_error
from compatgate.strict_json import DECODE_ERRORS

_DRIVER_LABEL = "nvidia.com/cuda.driver-version.full"
_PRODUCT_LABEL = "nvidia.com/gpu.product"


Body = dict[str, Any]
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
        documents = parse_yaml(clean, origin, "is not YAML", _OBJECTS_HINT)
    objects = tuple(one for document in documents for one in _flatten(document, origin))
    if not objects:
        raise BadInput("contains no objects", field=origin, hint=_OBJECTS_HINT)
    return objects


def _flatten(document: Any, origin: str) -> Iterator[Body]:
    items = document
    if isinstance(document, dict) and str(document.get("kind", "")).endswith("List"):
        items = document.get("items")
    if isinstance(items, list):
        for item in items:
            yield from _flatten(item, origin)
    elif isinstance(document, dict):
        yield document
    elif document not in (None, ""):
        raise BadInput("is not an object", field=origin, hint=_OBJECTS_HINT)


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
    """A driver that an object (``NVIDIADriver h100``) has the operator install on some nodes.

    Without a known version, ``why`` says why; ``note`` is a remark, or empty.
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
        terms = [  # fields select single nodes by name, which labels cannot decide
            list_objects(term, "matchExpressions")
            for term in self.affinity
            if not list_objects(term, "matchFields")
        ]  # an empty term matches nothing
        return not self.affinity or any(
            term and all(_matches_expression(one, labels) for one in term) for term in terms
        )


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


def read_operator(bodies: Iterable[Body]) -> Operator:
    """Read ClusterPolicy and NVIDIADriver objects."""
    objects = list(bodies)
    policies = [one for one in objects if one.get("kind") == CLUSTER_POLICY]
    found = [_driver_object(one) for one in objects if one.get("kind") == NVIDIA_DRIVER]
    drivers = tuple(driver for driver in found if driver)
    notes: list[str] = []
    if len(policies) > 1:
        notes.append("there are several ClusterPolicy objects; the operator follows one of them")
    settings = [nested_object(one, "spec", "driver") for one in policies]
    if not policies or any(read_flag(one.get("useNvidiaDriverCRD")) for one in settings):
        if policies and not drivers:
            notes.append(
                "the ClusterPolicy leaves the driver to NVIDIADriver objects, and none is given: "
                "kubectl get nvidiadrivers -o yaml"
            )
        return Operator(drivers, tuple(notes))
    if drivers:
        notes.append(
            "driver.useNvidiaDriverCRD of the ClusterPolicy is not true: the operator does not"
            " follow the NVIDIADriver objects"
        )
    stated = []
    for body, setting in zip(policies, settings, strict=True):
        name = scalar_text(nested_object(body, "metadata").get("name")) or "cluster-policy"
        origin = f"{CLUSTER_POLICY} {name}"
        version, why = None, f"{origin}: the driver is installed by something else"
        if read_flag(setting.get("enabled"), default=True):
            without = "the operator installs its default version"
            version, why = _driver_version(setting, origin, without)
        stated.append(DeclaredDriver(origin, name, version, why))
    driver = stated[0]
    if len({one.version for one in stated}) > 1:
        names = " and ".join(one.origin for one in stated)
        why = f"{names} name different drivers, and the operator follows one of them"
        driver = DeclaredDriver(names, driver.name, why=why)
    return Operator((driver,), tuple(notes))


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


def _matches_expression(one: Body, labels: Mapping[str, str]) -> bool:
    """Source: Kubernetes API reference, NodeSelectorTerm and NodeSelectorRequirement."""
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


class DraftPool(ObservedPool, frozen=True):
    """A pool whose properties may be unknown, with the reason by the property's name in ``why``.

    ``gpu`` is in a form that `resolve_gpu` reads.
    """

    why: dict[str, str] = {}

    @property
    def missing(self) -> tuple[str, ...]:
        """Return the properties that a target needs and the pool lacks."""
        return tuple(name for name in ("gpu", "driver") if not getattr(self, name))


class Draft(Struct, frozen=True):
    """Drafted pools, with notes for the review."""

    pools: tuple[DraftPool, ...]
    notes: tuple[str, ...] = ()

    def filled(self, table: Gpus, **values: str | None) -> Draft:
        """Add a person's statements: they decide, and each contradiction becomes a note."""
        stated = {name: value for name, value in values.items() if value}
        if "gpu" in stated:
            resolve_gpu(stated["gpu"], table)
        if "driver" in stated:
            parse_version("driver", stated["driver"])
        notes = list(self.notes)
        for name, value in stated.items():
            known = {getattr(pool, name) for pool in self.pools} - {None, "", value}
            if known and name in ("gpu", "driver", "cpu"):
                notes.append(f"{name}: the files say {', '.join(sorted(known))}, {value} is stated")
        pools = tuple(replace(pool, **stated) for pool in self.pools)
        return Draft(pools, tuple(notes))


def draft_pool(pool: ObservedPool, why: dict[str, str] | None = None) -> DraftPool:
    """Draft a pool from observed nodes."""
    return DraftPool(**asdict(pool), why=why or {})


def draft_target(draft: Draft, name: str, table: Gpus) -> dict[str, Any]:
    """Return the ``Target`` document without unknown properties; import refuses such a document."""
    written = []
    for pool in draft.pools:
        if pool.gpu:  # by the product's name, with the product's processor where none is known
            try:
                gpu = resolve_gpu(pool.gpu, table)
            except BadInput as error:
                raise error.at(f"pools.{pool.name}") from None
            pool = replace(pool, gpu=gpu.sku, cpu=pool.cpu or gpu.cpu)
        body = pool.to_body()
        written.append({key: body[key] for key in PoolSpec.__struct_fields__ if key in body})
    return {
        "apiVersion": API_VERSION,
        "kind": "Target",
        "metadata": {"name": name},
        "spec": {"pools": written},
    }


def read_drafts(texts: Iterable[tuple[str, str]], facts: Facts) -> Draft:
    """Read one or several files, each an origin (a file's name) and content, into one draft."""
    operators: list[Body] = []
    nodes: list[Node] = []
    for origin, text in texts:
        for body in read_objects(text, origin):
            group = scalar_text(body.get("apiVersion")).partition("/")[0]
            if group == "nvidia.com" and body.get("kind") in (CLUSTER_POLICY, NVIDIA_DRIVER):
                operators.append(body)
            elif body.get("kind") == "Node":
                metadata = nested_object(body, "metadata")
                labels = {
                    str(k): scalar_text(v) for k, v in nested_object(metadata, "labels").items()
                }
                nodes.append(Node(scalar_text(metadata.get("name")), labels))
            else:
                kind = scalar_text(body.get("kind")) or "an object without a kind"
                problem = f"is {kind} {scalar_text(body.get('apiVersion'))}".strip()
                hint = "give ClusterPolicy, NVIDIADriver, Node"
                raise BadInput(problem, field=origin, hint=hint)
    operator = read_operator(operators)
    return _draft_nodes(nodes, operator, facts) if nodes else _draft_operator(operator)


def _draft_nodes(nodes: Sequence[Node], operator: Operator, facts: Facts) -> Draft:
    notes, why, described = list(operator.notes), dict[str, str](), []
    for node in nodes:
        declared = operator.for_node(node.labels) if operator.drivers else None
        has = node.labels.get(_DRIVER_LABEL)
        notes += [declared.note] if declared and declared.note else []
        if declared is None:
            if operator.drivers and _PRODUCT_LABEL in node.labels:
                notes.append(f"no driver is declared for node {node.name}")
        elif declared.version is None:
            why["driver"] = declared.why
            notes.append(declared.why)
        else:
            if has and has != declared.version:
                notes.append(
                    f"{declared.origin} declares driver {declared.version}, {node.name} has {has}"
                )
            node = Node(node.name, {**node.labels, _DRIVER_LABEL: declared.version})
        described.append(node)
    grouped = group_nodes(described, facts)
    notes += [*grouped.notes, *(conflict.message for conflict in grouped.conflicts)]
    reasons = why or {"driver": "no label names it"}
    pools = tuple(
        draft_pool(pool, reasons if pool.driver is None else None) for pool in grouped.pools
    )
    return Draft(pools, tuple(dict.fromkeys(notes)))


def _draft_operator(operator: Operator) -> Draft:
    """Draft a pool for each driver without nodes; a selector may name its GPU."""
    pools, notes = [], list(operator.notes)
    for one in operator.drivers:
        product = one.selector.get(_PRODUCT_LABEL)
        why = {} if product else {"gpu": "the objects do not name it; give the nodes as well"}
        why |= {} if one.version else {"driver": one.why}
        notes += [one.note] if one.note else []
        pools.append(DraftPool(one.name.lower(), product or "", one.version, why=why))
    if not pools:
        nothing = "; ".join(notes) or "nothing declares a driver"
        raise BadInput(nothing, hint="give the NVIDIADriver objects, or a ClusterPolicy")
    return Draft(tuple(pools), tuple(dict.fromkeys(notes)))
