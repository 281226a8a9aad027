"""Read the nodes of a cluster as reports.

Nodes come live, or as ``kubectl get nodes -o json`` printed them.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from compatgate.errors import BadInput, CompatgateError, quote_error
from compatgate.kit.kubernetes import (
    UNREPORTED_LABELS,
    ClusterAccess,
    ClusterApi,
    ObjectMissing,
    read_labels,
    read_list,
    read_mapping,
    read_text,
)
from compatgate.service.cluster.claims import (
    CLAIM,
    GROUP,
    TEMPLATE,
    KnownClaims,
    Requests,
    read_requests,
)
from compatgate.service.cluster.kinds import shipped_kinds
from compatgate.service.cluster.matching import TARGET
from compatgate.service.nodes import schemas as report
from compatgate.strict_json import DECODE_ERRORS

_LARGEST_REPORT = 512 * 1024
"""Maximum size of a report in bytes; a server accepts 1 MiB by default."""
_FIRST_LABELS = (
    "nvidia.com/",
    "compatgate.dev/",
    "kubernetes.io/",
    "node.kubernetes.io/",
    "topology.kubernetes.io/",
)
"""Prefixes of labels that a report keeps first if a node has too many."""
_KEY, _VALUE = re.compile(report.KEY_PATTERN), re.compile(report.VALUE_PATTERN)
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_MAX_TAINTS = 64
_NAME, _TARGET = re.compile(report.NAME_PATTERN), re.compile(report.TARGET_PATTERN)
_VERSIONS = ("v1", "v1beta2", "v1beta1", "v1alpha3")
_PLURALS = {CLAIM: "resourceclaims", TEMPLATE: "resourceclaimtemplates"}
_TIMEOUT_S = (1.0, 1.0)
_MOST = 16
"""Claims that are read for one object; more are not known."""
_log = logging.getLogger("compatgate.gate")


class ClusterNode(Struct, frozen=True):
    """The relevant fields of a Node object; allocatable resources may be unreported."""

    name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    allocatable: Mapping[str, int] | None
    taints: tuple[Mapping[str, Any], ...] = ()

    @property
    def has_gpus(self) -> bool:
        """Return whether labels or resources show an NVIDIA GPU."""
        return bool(self.allocatable) or any(key.startswith("nvidia.com/") for key in self.labels)

    def to_report(self) -> dict[str, Any]:
        """Convert the node to a `compatgate.service.nodes.schemas.NodeReport`."""
        labels = [
            (key, value)
            for key, value in self.labels.items()
            if not UNREPORTED_LABELS.match(key) and _KEY.fullmatch(key) and _VALUE.fullmatch(value)
        ]
        labels.sort(key=lambda label: (not label[0].startswith(_FIRST_LABELS), label[0]))
        taints = [taint for raw in self.taints if (taint := _taint(raw))]
        body: dict[str, Any] = {
            "name": self.name,
            "labels": dict(labels[: report.MAX_LABELS]),
            "taints": taints[:_MAX_TAINTS],
        }
        if self.allocatable is not None:
            body["allocatable"] = dict(self.allocatable)
        named = self.annotations.get(TARGET, "").strip()
        if _TARGET.fullmatch(named):
            body["target"] = named
        return body


def list_nodes(api: ClusterApi) -> list[ClusterNode]:
    """Return the nodes of a cluster; raise as `Api.ask`."""
    return api.listed("core", "list_node", keep=node_of)


def parse_nodes(raw: bytes, origin: str) -> list[ClusterNode]:
    """Parse the output of ``kubectl get nodes -o json``, or one of its nodes."""
    hint = "use the output of kubectl get nodes -o json"
    try:
        document = msgspec.json.decode(raw)
    except DECODE_ERRORS as error:
        raise BadInput(f"is not JSON: {quote_error(error)}", field=origin, hint=hint) from None
    whole = read_mapping(document)
    listed = read_list(whole.get("items")) if "items" in whole else [whole]
    found = [node for item in listed if (node := node_of(read_mapping(item)))]
    if not found:
        raise BadInput("contains no node", field=origin, hint=hint)
    return found


def node_of(body: Mapping[str, Any]) -> ClusterNode | None:
    """Read a Node object; None: it is not a node, or has no valid name."""
    metadata, spec = read_mapping(body.get("metadata")), read_mapping(body.get("spec"))
    name = read_text(metadata.get("name"))
    if body.get("kind", "Node") != "Node" or not _NAME.fullmatch(name):
        return None
    allocatable = read_mapping(body.get("status")).get("allocatable")
    return ClusterNode(
        name,
        read_labels(metadata.get("labels")),
        read_labels(metadata.get("annotations")),
        dict(_resources(allocatable)) if isinstance(allocatable, dict) else None,
        tuple(read_mapping(taint) for taint in read_list(spec.get("taints"))),
    )


def make_reports(nodes: Iterable[ClusterNode], cluster: str) -> Iterator[dict[str, Any]]:
    """Split nodes into reports that are small enough to send."""
    batch: list[dict[str, Any]] = []
    size = 0
    for node in nodes:
        body = node.to_report()
        length = len(msgspec.json.encode(body))
        if batch and (len(batch) >= report.MAX_NODES or size + length > _LARGEST_REPORT):
            yield {"cluster": cluster, "nodes": batch}
            batch, size = [], 0
        batch.append(body)
        size += length
    if batch:
        yield {"cluster": cluster, "nodes": batch}


def _resources(stated: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    for name, count in stated.items():
        if shipped_kinds().is_gpu(name) and str(count).isascii() and str(count).isdecimal():
            yield name, min(int(str(count)[:6]), 65536)


def _taint(raw: Mapping[str, Any]) -> dict[str, str] | None:
    """Return a taint for a report; None: it is malformed."""
    key, effect, value = (read_text(raw.get(name)) for name in ("key", "effect", "value"))
    well_formed = _KEY.fullmatch(key) and _VALUE.fullmatch(value) and effect in _EFFECTS
    return {"key": key, "effect": effect, "value": value} if well_formed else None


class ClusterClaims:
    """The claims of a cluster; safe for any number of threads.

    A specification cannot change, but a claim can be made anew under its name: nothing is kept.
    """

    def __init__(self, api: ClusterApi) -> None:
        self._api = api
        self._versions: tuple[str, ...] = _VERSIONS
        self._failing = False

    @classmethod
    def connect(cls, access: ClusterAccess) -> ClusterClaims:
        """Return the claims of a cluster that is asked while its API server waits."""
        return cls(ClusterApi(access, pauses=(), timeout_s=_TIMEOUT_S))

    def of(self, namespace: str) -> KnownClaims:
        """Return the claims of a namespace; each is read when it is asked for."""
        return _NamespaceClaims(self, namespace)

    def read(self, namespace: str, kind: str, name: str) -> Requests | None:
        """Return the requests of a claim or template; None: there is none."""
        for version in self._versions:
            try:
                found = self._api.ask(
                    "custom",
                    "get_namespaced_custom_object",
                    GROUP,
                    version,
                    namespace,
                    _PLURALS[kind],
                    name,
                )
            except ObjectMissing:
                continue
            if version != self._versions[0]:
                self._versions = (version, *(one for one in _VERSIONS if one != version))
            return read_requests({**found, "kind": kind})
        return None

    def note(self, error: CompatgateError | None) -> None:
        """Log the first of several failures."""
        if error is not None and not self._failing:
            _log.warning("claims cannot be read, and count as GPUs: %s", error.detail)
        self._failing = error is not None


class _NamespaceClaims(Mapping[tuple[str, str], Requests]):
    def __init__(self, claims: ClusterClaims, namespace: str) -> None:
        self._claims = claims
        self._namespace = namespace
        self._found: dict[tuple[str, str], Requests | None] = {}
        self._ended = False

    def __getitem__(self, key: tuple[str, str]) -> Requests:
        if key not in self._found and not self._ended and len(self._found) < _MOST:
            self._found[key] = self._read(*key)
        found = self._found.get(key)
        if found is None:
            raise KeyError(key)
        return found

    def _read(self, kind: str, name: str) -> Requests | None:
        try:
            found = self._claims.read(self._namespace, kind, name)
        except CompatgateError as error:
            self._ended = True  # do not wait again for the same object
            self._claims.note(error)
        else:
            self._claims.note(None)
            return found
        return None

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return (key for key, found in self._found.items() if found is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)
