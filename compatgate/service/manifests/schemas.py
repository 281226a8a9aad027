"""Define the JSON of a check of one Kubernetes object."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from compatgate.service.admission.outcome import ReviewResult
from compatgate.service.gate.schemas import FindingBody, VerdictBody

Namespace = Annotated[str, Meta(min_length=1, max_length=253)]


class ManifestCheckRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A Kubernetes object that is not in a cluster yet."""

    object: Annotated[dict[str, Any], Meta(description="the object, with apiVersion and kind")]
    namespace: Annotated[
        Namespace, Meta(description="where the object goes, if it states no namespace itself")
    ] = "default"
    claims: Annotated[
        list[dict[str, Any]],
        Meta(
            max_length=256,
            description="ResourceClaims, ResourceClaimTemplates and ComputeDomains that are created"
            " with the object; they count before those that the gate reads from its cluster",
        ),
    ] = []


class ManifestResultBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The result for containers of an object on one target."""

    containers: Annotated[list[str], Meta(description="names; equal containers share a result")]
    paths: Annotated[
        list[str],
        Meta(
            description="where the containers are in the object",
            examples=[["spec.template.spec.containers[0]"]],
        ),
    ]
    image: Annotated[str, Meta(description="as the object names it; empty: it names none")]
    target: Annotated[str | None, Meta(description="null: the containers match no target")]
    outcome: Annotated[
        ReviewResult,
        Meta(
            description="what admission would do. `exempt`: a waiver lets the containers in;"
            " `unmatched`: no target matches, and the gate's operator lets them in; `would_deny`:"
            " let in, and denied if the mode of the target were enforce"
        ),
    ]
    messages: Annotated[list[str], Meta(description="the denial or the warnings of admission")]
    finding: Annotated[
        FindingBody | None, Meta(description="about the placement; then no stack was judged")
    ]
    waiver: Annotated[str | None, Meta(description="name of the waiver that exempts")]
    verdict: Annotated[VerdictBody | None, Meta(description="null: no stack was judged")]


class ManifestCheckBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The answer that admission would give for an object."""

    allowed: bool
    message: Annotated[str, Meta(description="the denial in one line; empty if admitted")]
    warnings: Annotated[list[str], Meta(description="warnings about the object as a whole")]
    uses_gpus: Annotated[bool, Meta(description="the object is or makes pods that ask for GPUs")]
    results: list[ManifestResultBody]


EXAMPLES: dict[str, Any] = {
    "job": {
        "namespace": "ml-train",
        "object": {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "train"},
            "spec": {
                "template": {
                    "metadata": {
                        "annotations": {
                            "compatgate.dev/target": "prod-a100",
                            "compatgate.dev/stack": "cuda=12.4,cudnn=9.1.0,torch=2.4.1+cu124",
                        }
                    },
                    "spec": {
                        "containers": [
                            {
                                "name": "train",
                                "image": "registry.example/team/train:1.2",
                                "resources": {"limits": {"nvidia.com/gpu": "1"}},
                            }
                        ]
                    },
                }
            },
        },
    }
}
