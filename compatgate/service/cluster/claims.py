"""Read the claims of dynamic resource allocation: which classes of devices they ask for.

Sources: Kubernetes API reference, ``resource.k8s.io`` v1, v1beta1, v1beta2 and v1alpha3. A pod
names a ResourceClaim, or a ResourceClaimTemplate from which one is made for it. Each of its
requests asks for devices of one class, or for the first of several that can be had. A claim of
v1alpha2 names one class.

NVIDIA/k8s-dra-driver-gpu: a ComputeDomain names the template that its driver makes, for channels
between nodes, which are no GPUs. NVIDIA/k8s-nim-operator, ``api/apps/v1alpha1/dra_types.go``: a
NIMService states its claims in ``draResources``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from msgspec import Struct

from compatgate.kit.kubernetes import read_list, read_mapping, read_text
from compatgate.service.cluster.kinds import Kinds

GROUP = "resource.k8s.io"
CLAIM, TEMPLATE = "ResourceClaim", "ResourceClaimTemplate"
_DOMAIN_GROUP, _DOMAIN = "resource.nvidia.com", "ComputeDomain"
_CHANNEL_CLASS = "compute-domain-default-channel.nvidia.com"
_WHOLE_CLASS = "gpu.nvidia.com"


class DeviceRequest(Struct, frozen=True):
    """A request of a claim.

    ``name``: a subrequest as ``request/subrequest``; empty: the claim has no named requests.
    """

    name: str
    device_class: str


Requests = tuple[DeviceRequest, ...]


class KnownClaims(Protocol):
    """Requests by kind (``ResourceClaim``, ``ResourceClaimTemplate``) and name, in a namespace."""

    def get(self, key: tuple[str, str], /) -> Requests | None:
        """Return the requests; None: the claim is not known."""
        ...


NO_CLAIMS: KnownClaims = dict[tuple[str, str], Requests]()


class StatedClaims(Struct, frozen=True):
    """The claims of a namespace: those that were read, else those that an operator states."""

    read: KnownClaims
    kinds: Kinds
    namespace: str

    def get(self, key: tuple[str, str], /) -> Requests | None:
        """Return the requests; None: the claim is not known."""
        found = self.read.get(key)
        if found is not None:
            return found
        classes = self.kinds.classes_of_claim(self.namespace, key[1])
        return None if classes is None else tuple(DeviceRequest("", name) for name in classes)


class LayeredClaims(Struct, frozen=True):
    """The claims of two sources; the first that knows a claim counts."""

    first: KnownClaims
    second: KnownClaims

    def get(self, key: tuple[str, str], /) -> Requests | None:
        """Return the requests; None: the claim is not known."""
        found = self.first.get(key)
        return self.second.get(key) if found is None else found


def no_claims(namespace: str) -> KnownClaims:
    """Return no claims, whatever the namespace: nobody reads them."""
    del namespace
    return NO_CLAIMS


class Claim(Struct, frozen=True):
    """A claim of a pod, by the name that its containers use.

    ``requests`` is None: the claim or its template is not known.
    """

    name: str
    requests: Requests | None = None

    def classes(self, request: str) -> tuple[str, ...]:
        """Return the classes of one request; of every one where the name is empty."""
        return tuple(
            one.device_class
            for one in self.requests or ()
            if not request
            or not one.name
            or one.name == request
            or one.name.startswith(f"{request}/")
        )


def claims_of(spec: Mapping[str, Any], known: KnownClaims) -> dict[str, Claim]:
    """Return the claims of a pod, by name."""
    found: dict[str, Claim] = {}
    for item in map(read_mapping, read_list(spec.get("resourceClaims"))):
        source = read_mapping(item.get("source")) or item  # v1alpha2 and before
        name = read_text(item.get("name"))
        found[name] = Claim(name, _known_requests(source, known))
    return found


def stated_claims(container: Mapping[str, Any], known: KnownClaims) -> list[Claim]:
    """Return the claims that a container of a custom kind states by itself."""
    found = []
    for item in map(read_mapping, read_list(container.get("draResources"))):
        made = read_list(read_mapping(item.get("claimCreationSpec")).get("devices"))
        if made:
            classes = (read_text(one.get("deviceClassName")) for one in map(read_mapping, made))
            requests = tuple(DeviceRequest("", name or _WHOLE_CLASS) for name in classes)
            found.append(Claim("draResources", requests))
        else:
            found.append(Claim("draResources", _known_requests(item, known)))
    return found


def _known_requests(source: Mapping[str, Any], known: KnownClaims) -> Requests | None:
    for kind, field in ((CLAIM, "resourceClaimName"), (TEMPLATE, "resourceClaimTemplateName")):
        if stated := read_text(source.get(field)):
            return known.get((kind, stated))
    return None


def is_claim(document: Mapping[str, Any]) -> bool:
    """Return whether an object is a claim or a template of claims."""
    group = read_text(document.get("apiVersion")).partition("/")[0]
    return group == GROUP and document.get("kind") in (CLAIM, TEMPLATE)


def states_claims(document: Mapping[str, Any]) -> bool:
    """Return whether `read_claims` reads something from an object."""
    return is_claim(document) or bool(_channel_template(document))


def read_claims(documents: Iterable[Mapping[str, Any]], namespace: str) -> KnownClaims:
    """Return the requests of claims and templates of a namespace."""
    found: dict[tuple[str, str], Requests] = {}
    for document in documents:
        metadata = read_mapping(document.get("metadata"))
        if read_text(metadata.get("namespace")) not in ("", namespace):
            continue
        if is_claim(document):
            key = (read_text(document.get("kind")), read_text(metadata.get("name")))
            found[key] = read_requests(document)
        elif name := _channel_template(document):
            found[(TEMPLATE, name)] = (DeviceRequest("", _CHANNEL_CLASS),)
    return found


def _channel_template(document: Mapping[str, Any]) -> str:
    group = read_text(document.get("apiVersion")).partition("/")[0]
    if (group, document.get("kind")) != (_DOMAIN_GROUP, _DOMAIN):
        return ""
    channel = read_mapping(read_mapping(document.get("spec")).get("channel"))
    return read_text(read_mapping(channel.get("resourceClaimTemplate")).get("name"))


def read_requests(document: Mapping[str, Any]) -> Requests:
    """Return the requests of a claim, or of the claims that a template makes."""
    spec = read_mapping(document.get("spec"))
    if document.get("kind") == TEMPLATE:
        spec = read_mapping(spec.get("spec"))
    if named := read_text(spec.get("resourceClassName")):
        return (DeviceRequest("", named),)
    found: list[DeviceRequest] = []
    for item in map(read_mapping, read_list(read_mapping(spec.get("devices")).get("requests"))):
        name = read_text(item.get("name"))
        exactly = read_mapping(item.get("exactly")) or item
        if device_class := read_text(exactly.get("deviceClassName")):
            found.append(DeviceRequest(name, device_class))
        for one in map(read_mapping, read_list(item.get("firstAvailable"))):
            of_one = f"{name}/{read_text(one.get('name'))}"
            found.append(DeviceRequest(of_one, read_text(one.get("deviceClassName"))))
    return tuple(found)
