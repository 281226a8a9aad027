"""Read the claims of dynamic resource allocation: which classes of devices they ask for.

Sources: Kubernetes API reference, ``resource.k8s.io`` v1, v1beta1, v1beta2 and v1alpha3. A pod
names a ResourceClaim, or a ResourceClaimTemplate from which one is made for it. Each of its
requests asks for devices of one class, or for the first of several that can be had. A claim of
v1alpha2 names one class.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from compatgate.kit.kubernetes import read_list, read_mapping, read_text

GROUP = "resource.k8s.io"
CLAIM, TEMPLATE = "ResourceClaim", "ResourceClaimTemplate"


class DeviceRequest(Struct, frozen=True):
    """A request of a claim.

    Attributes:
        name: a subrequest as ``request/subrequest``; empty: the claim has no named requests.
        device_class: of the devices.
    """

    name: str
    device_class: str


Requests = tuple[DeviceRequest, ...]
KnownClaims = Mapping[tuple[str, str], Requests]
"""Requests by kind, ``ResourceClaim`` or ``ResourceClaimTemplate``, and name; of one namespace."""
NO_CLAIMS: KnownClaims = {}


class Claim(Struct, frozen=True):
    """A claim of a pod, by the name that its containers use.

    Attributes:
        requests: None: the claim or its template is not known.
    """

    name: str
    requests: Requests | None = None

    def classes(self, request: str) -> tuple[str, ...]:
        """Return the classes of one request; of every one where the name is empty."""
        return tuple(
            one.device_class
            for one in self.requests or ()
            if not request or one.name == request or one.name.startswith(f"{request}/")
        )


def claims_of(spec: Mapping[str, Any], known: KnownClaims) -> dict[str, Claim]:
    """Return the claims of a pod, by name."""
    found: dict[str, Claim] = {}
    for item in map(read_mapping, read_list(spec.get("resourceClaims"))):
        source = read_mapping(item.get("source")) or item  # v1alpha2 and before
        name = read_text(item.get("name"))
        requests = None
        for kind, field in (
            (CLAIM, "resourceClaimName"),
            (TEMPLATE, "resourceClaimTemplateName"),
        ):
            if stated := read_text(source.get(field)):
                requests = known.get((kind, stated))
        found[name] = Claim(name, requests)
    return found


def is_claim(document: Mapping[str, Any]) -> bool:
    """Return whether an object is a claim or a template of claims."""
    group = read_text(document.get("apiVersion")).partition("/")[0]
    return group == GROUP and document.get("kind") in (CLAIM, TEMPLATE)


def read_claims(documents: Iterable[Mapping[str, Any]], namespace: str) -> KnownClaims:
    """Return the requests of claims and templates of a namespace.

    Args:
        documents: objects of any kind; one without a namespace counts for every namespace.
        namespace: of the pods.
    """
    found: dict[tuple[str, str], Requests] = {}
    for document in documents:
        metadata = read_mapping(document.get("metadata"))
        if is_claim(document) and read_text(metadata.get("namespace")) in ("", namespace):
            key = (read_text(document.get("kind")), read_text(metadata.get("name")))
            found[key] = read_requests(document)
    return found


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
