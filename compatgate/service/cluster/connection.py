"""Connect to a cluster through the official client, and read its nodes as reports.

Nodes come live, or as ``kubectl get nodes -o json`` printed them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from compatgate.errors import BadInput, CompatgateError, Forbidden, InfrastructureError
from compatgate.kit import kubernetes
from compatgate.kit.kubernetes import (
    RETRY_HINT,
    RETRY_PAUSES,
    ClusterAccess,
    ObjectExists,
    ObjectMissing,
    ServerBusy,
    VersionGone,
    api_client,
    busy_error,
    error_text,
    read_labels,
    read_list,
    read_mapping,
    read_text,
    retry_request,
)
from compatgate.service.admission.matching import TARGET
from compatgate.service.nodes import schemas as report
from compatgate.strict_json import DECODE_ERRORS

T = TypeVar("T")
PAGE = 500
_TIMEOUT_S = (10, 60)
_PAUSES = RETRY_PAUSES
_LISTS = 3
"""Maximum number of restarts of a list whose continuation expired."""
_APIS = {
    "admission": "AdmissionregistrationV1Api",
    "core": "CoreV1Api",
    "custom": "CustomObjectsApi",
}


class ClusterApi:
    """A connection to the API server, which retries while the server is busy.

    Args:
        access: how it is reached.
        sleep: waits between two tries.
    """

    def __init__(self, access: ClusterAccess, sleep: Callable[[float], None] = time.sleep) -> None:
        self._access = access
        self._sleep = sleep
        self._client: Any = None

    def ask(self, api: str, operation: str, *args: Any, **params: Any) -> dict[str, Any]:
        """Make a request; requests of this module can safely be repeated.

        Args:
            api: ``admission``, ``core`` or ``custom``.
            operation: of the client, such as ``list_node``.
            args: of the operation.
            params: further ones.

        Raises:
            Missing, Taken, Gone: there is none; it was changed meanwhile; a list must begin anew.
            Infrastructure: the server does not answer, or cannot now.
            CompatgateError: it refuses.
        """

        def once() -> dict[str, Any]:
            with _translate_errors():
                method = getattr(self._api(api), operation)
                response = method(
                    *args, **params, _preload_content=False, _request_timeout=_TIMEOUT_S
                )
                body: dict[str, Any] = msgspec.json.decode(response.data)
                return body

        return retry_request(once, _PAUSES, self._sleep)

    def listed(
        self,
        api: str,
        operation: str,
        *args: Any,
        keep: Callable[[dict[str, Any]], T | None],
        **params: Any,
    ) -> list[T]:
        """Return every item of a list, page by page, or raise.

        Args:
            api: as `ask`.
            operation: as `ask`.
            args: as `ask`.
            keep: what is kept of an item; None: nothing.
            params: as `ask`.

        Raises:
            CompatgateError: as `ask`.
        """
        for attempt in range(_LISTS):
            try:
                return self._pages(api, operation, args, params, keep)
            except VersionGone:
                if attempt == _LISTS - 1:
                    raise
        raise AssertionError("the last try returns or raises")

    def close(self) -> None:
        """Drop the connection."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _pages(
        self,
        api: str,
        operation: str,
        args: tuple[Any, ...],
        params: dict[str, Any],
        keep: Callable[[dict[str, Any]], T | None],
    ) -> list[T]:
        found: list[T] = []
        more: dict[str, Any] = {}
        while True:
            page = self.ask(api, operation, *args, **params, **more, limit=PAGE)
            kept = (keep(item) for item in page.get("items") or () if isinstance(item, dict))
            found += [item for item in kept if item is not None]
            following = (page.get("metadata") or {}).get("continue")
            if not following:
                return found
            more = {"_continue": following}

    def _api(self, name: str) -> Any:
        module = kubernetes.kubernetes_client()
        self._client = self._client or api_client(module, self._access, self._refused)
        return getattr(module, _APIS[name])(self._client)

    def _refused(self, what: str) -> BadInput:
        return BadInput(
            f"no connection to the cluster is configured: {what}",
            field="--kubeconfig",
            value=self._access.kubeconfig,
            hint="name --kubeconfig and --context, or --in-cluster in a pod",
        )


@contextmanager
def _translate_errors() -> Iterator[None]:
    from urllib3.exceptions import HTTPError

    refused = kubernetes.kubernetes_client().ApiException
    try:
        yield
    except refused as error:
        raise _refusal(error) from error
    except (HTTPError, OSError, EOFError, *DECODE_ERRORS) as error:
        what = " ".join(str(error).split()) or type(error).__name__
        hint = "check that its API server runs and is reachable from here"
        raise ServerBusy(f"the cluster does not answer: {what}", hint=hint) from error


def _refusal(error: Any) -> CompatgateError:
    what = error_text(error.body) or error.reason or "no reason given"
    match error.status:
        case 410:
            return VersionGone(what)
        case 404:
            return ObjectMissing(f"the cluster: {what}")
        case 409:
            return ObjectExists(f"the cluster refuses: {what}")
        case 401:
            return Forbidden(
                f"the cluster does not accept the credentials: {what}", hint="log in again"
            )
        case 403:
            hint = "apply the roles that 'compatgate k8s manifests --nodes' and '--audit' print"
            return Forbidden(f"the cluster does not allow it: {what}", hint=hint)
        case 0:
            return CompatgateError(f"the cluster's certificate is not trusted: {error.reason}")
        case status if status in RETRY_HINT:
            return busy_error(f"the cluster failed: {what}", error)
        case status if status < 500:
            return BadInput(f"the cluster refuses: {what}")
    return InfrastructureError(f"the cluster failed: {error.status} {what}")


_LARGEST_REPORT = 512 * 1024
"""Maximum size of a report in bytes; a server accepts 1 MiB by default."""
_GPU = re.compile(r"nvidia\.com/(gpu|mig-[A-Za-z0-9.-]+)(\.shared)?")
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
_MOST_TAINTS = 64
_NAME, _TARGET = re.compile(report.NAME_PATTERN), re.compile(report.TARGET_PATTERN)


class ClusterNode(Struct, frozen=True):
    """The relevant fields of a Node object.

    Attributes:
        allocatable: resources that the kubelet hands out; None: not reported.
        version: ``resourceVersion``; the server refuses a change made from an older one.
        taints: current taints.
    """

    name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    allocatable: Mapping[str, int] | None
    taints: tuple[Mapping[str, Any], ...] = ()
    version: str = ""

    @property
    def has_gpus(self) -> bool:
        """Return whether labels or resources show an NVIDIA GPU."""
        return bool(self.allocatable) or any(key.startswith("nvidia.com/") for key in self.labels)

    def to_report(self) -> dict[str, Any]:
        """Convert the node to a `compatgate.service.nodes.schemas.NodeReport`."""
        labels = {key: value for key, value in self.labels.items() if _is_label(key, value)}
        body: dict[str, Any] = {
            "name": self.name,
            "labels": dict(sorted(labels.items(), key=_rank)[: report.MOST_LABELS]),
        }
        taints = [taint for raw in self.taints if (taint := _taint(raw))]
        body["taints"] = taints[:_MOST_TAINTS]
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
    """Parse the output of ``kubectl get nodes -o json``, or one of its nodes.

    Raises:
        BadInput: the text is not JSON, or holds no node.
    """
    hint = "use the output of kubectl get nodes -o json"
    try:
        document = msgspec.json.decode(raw)
    except DECODE_ERRORS as error:
        raise BadInput(f"is not JSON: {error}", field=origin, hint=hint) from None
    whole = read_mapping(document)
    listed = read_list(whole.get("items")) if "items" in whole else [whole]
    found = [node for item in listed if (node := node_of(read_mapping(item)))]
    if not found:
        raise BadInput("holds no node", field=origin, hint=hint)
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
        read_text(metadata.get("resourceVersion")),
    )


def make_reports(nodes: Iterable[ClusterNode], cluster: str) -> Iterator[dict[str, Any]]:
    """Split nodes into reports that are small enough to send."""
    batch: list[dict[str, Any]] = []
    size = 0
    for node in nodes:
        body = node.to_report()
        length = len(msgspec.json.encode(body))
        if batch and (len(batch) >= report.MOST_NODES or size + length > _LARGEST_REPORT):
            yield {"cluster": cluster, "nodes": batch}
            batch, size = [], 0
        batch.append(body)
        size += length
    if batch:
        yield {"cluster": cluster, "nodes": batch}


def _resources(stated: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    for name, count in stated.items():
        if _GPU.fullmatch(name) and str(count).isascii() and str(count).isdecimal():
            yield name, min(int(str(count)[:6]), 65536)


def _taint(raw: Mapping[str, Any]) -> dict[str, str] | None:
    """Return a taint for a report; None: it is malformed."""
    key, effect, value = (read_text(raw.get(name)) for name in ("key", "effect", "value"))
    well_formed = _KEY.fullmatch(key) and _VALUE.fullmatch(value) and effect in _EFFECTS
    return {"key": key, "effect": effect, "value": value} if well_formed else None


def _is_label(key: str, value: str) -> bool:
    return (
        not report.UNREPORTED_LABELS.match(key)
        and _KEY.fullmatch(key) is not None
        and _VALUE.fullmatch(value) is not None
    )


def _rank(label: tuple[str, str]) -> tuple[bool, str]:
    return (not label[0].startswith(_FIRST_LABELS), label[0])
