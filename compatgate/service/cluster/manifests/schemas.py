"""Define the JSON of a check of one Kubernetes object."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import Meta, Struct

from compatgate.core.rule import Finding
from compatgate.service.cluster.admission.schemas import ReviewResult
from compatgate.service.gate.questions.schemas import VerdictBody

Namespace = Annotated[str, Meta(min_length=1, max_length=253)]


class ManifestCheckRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A Kubernetes object that is not in a cluster yet."""

    object: Annotated[
        dict[str, Any], Meta(description="Kubernetes object, with apiVersion and kind")
    ]
    namespace: Annotated[Namespace, Meta(description="namespace, if the object states none")] = (
        "default"
    )
    claims: Annotated[
        list[dict[str, Any]],
        Meta(
            max_length=256,
            description="ResourceClaims, ResourceClaimTemplates and ComputeDomains that are created"
            " with the object; they count before those that the gate reads from its cluster",
        ),
    ] = []


class ObjectResult(Struct, frozen=True):
    """The result for containers of an object on one target, finding and verdict as JSON."""

    containers: Annotated[
        tuple[str, ...], Meta(description="names of containers; equal containers share a result")
    ]
    paths: Annotated[
        tuple[str, ...],
        Meta(
            description="paths of the containers in the object",
            examples=[["spec.template.spec.containers[0]"]],
        ),
    ]
    image: Annotated[str, Meta(description="image reference as in the object; empty: none")]
    target: Annotated[str | None, Meta(description="null: the containers match no target")]
    outcome: Annotated[
        ReviewResult,
        Meta(
            description="result of admission. `exempt`: a waiver admits the containers;"
            " `unmatched`: no target matches, and the operator's setting admits them;"
            " `would_deny`: admitted, but denied if the target were in enforce mode"
        ),
    ]
    messages: Annotated[tuple[str, ...], Meta(description="denial or warnings of admission")]
    finding: Any
    waiver: Annotated[
        str | None, Meta(description="name of the waiver that exempts the containers")
    ]
    verdict: Any


class ManifestResultBody(ObjectResult, frozen=True, forbid_unknown_fields=True):
    """The result for containers of an object on one target."""

    finding: Annotated[
        Finding | None, Meta(description="finding about the placement; if set, no stack was judged")
    ]
    verdict: Annotated[VerdictBody | None, Meta(description="null: no stack was judged")]


class ObjectAnswer(Struct, frozen=True):
    """The answer that admission would give for an object, with results as JSON."""

    allowed: bool
    message: Annotated[str, Meta(description="denial in one line; empty if admitted")]
    warnings: Annotated[tuple[str, ...], Meta(description="warnings about the object as a whole")]
    uses_gpus: Annotated[
        bool, Meta(description="true: the object is or creates pods that request GPUs")
    ]
    results: Sequence[ObjectResult]


class ManifestCheckBody(ObjectAnswer, frozen=True, forbid_unknown_fields=True):
    """The answer that admission would give for an object."""

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
