"""Define reviews of admission and checks of one Kubernetes object as JSON carries them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, get_args

from msgspec import Meta, Struct
from msgspec.structs import replace

from compatgate.core.evaluate import is_allowed
from compatgate.core.request import Policy
from compatgate.core.rule import Finding, Verdict
from compatgate.core.rules.caveats import no_node_for_pod, no_pool_for_request, waived
from compatgate.service.gate.questions.schemas import VerdictBody

Uid = Annotated[
    str, Meta(max_length=256, description="uid of the request; empty: the request had none")
]
REVIEW_EXAMPLES: dict[str, Any] = {
    "pod": {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "operation": "CREATE",
            "namespace": "ml-train",
            "name": "trainer",
            "dryRun": False,
            "object": {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": "trainer",
                    "annotations": {
                        "compatgate.dev/target": "prod-a100",
                        "compatgate.dev/stack": "cuda=12.4,cudnn=9.1.0,torch=2.4.1+cu124",
                    },
                },
                "spec": {
                    "containers": [
                        {
                            "name": "app",
                            "image": "registry.example/team/app:1.2",
                            "resources": {"limits": {"nvidia.com/gpu": "1"}},
                        }
                    ]
                },
            },
        },
    }
}
ReviewResult = Literal[
    "undecided", "allowed", "warned", "exempt", "unmatched", "would_deny", "denied", "failed"
]
"""Results of a review, the worst last. ``undecided``: nothing was asked, as for an object
without GPUs."""
RESULTS: tuple[ReviewResult, ...] = get_args(ReviewResult)
_RANK = {result: rank for rank, result in enumerate(RESULTS)}
Namespace = Annotated[str, Meta(min_length=1, max_length=253)]


class AdmissionRequest(Struct, frozen=True):
    """The object to admit; other fields of the API server are accepted too."""

    uid: Annotated[str, Meta(min_length=1, max_length=256)]
    kind: dict[str, Any]
    operation: str
    object: dict[str, Any] | None = None
    namespace: str = ""


class AdmissionReview(Struct, frozen=True, rename="camel"):
    """A request of the API server."""

    api_version: Literal["admission.k8s.io/v1"]
    kind: Literal["AdmissionReview"]
    request: AdmissionRequest


class AdmissionStatus(Struct, frozen=True):
    """The reason of a denial."""

    message: str
    reason: str
    code: int
    status: str = "Failure"


class AdmissionResponse(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The decision."""

    uid: Uid
    allowed: bool
    status: AdmissionStatus | None = None
    warnings: list[str] = []
    audit_annotations: dict[str, str] = {}


class AdmissionReviewAnswer(Struct, frozen=True, rename="camel"):
    """An answer to the API server."""

    api_version: Literal["admission.k8s.io/v1"]
    kind: Literal["AdmissionReview"]
    response: AdmissionResponse


class ReviewOutcome(Struct, frozen=True):
    """The result of a review.

    ``would_deny``: targets that would deny a container in mode ``enforce``, once for each of these
    containers.
    """

    result: ReviewResult = "undecided"
    would_deny: tuple[str, ...] = ()
    reason: str = ""


UNDECIDED = ReviewOutcome()


FAILED = ReviewOutcome("failed")


def weightiest(results: Iterable[ReviewResult]) -> ReviewResult:
    """Return the result that counts for an object with these containers."""
    return max(results, key=_RANK.__getitem__, default="undecided")


def result_of_verdict(verdict: Verdict, policy: Policy | None) -> ReviewResult:
    """Return the result of a container that the gate allows."""
    if policy and not is_allowed(verdict.verdict, replace(policy, mode="enforce")):
        return "would_deny"
    return "allowed" if verdict.verdict == "pass" else "warned"


def result_of_placement(finding: Finding, *, is_pod: bool) -> ReviewResult:
    """Return the result of a container whose placement is no reason to deny it."""
    # An object that makes pods is never denied for want of a node: nodes may come.
    if finding.rule == no_pool_for_request.id or (finding.rule == no_node_for_pod.id and is_pod):
        return "would_deny"  # these deny in mode enforce, and warn in the others
    return "exempt" if finding.rule == waived.id else "warned"


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


CHECK_EXAMPLES: dict[str, Any] = {
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
