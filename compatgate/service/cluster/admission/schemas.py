"""Define AdmissionReview for the API description, and the outcome of a review for metrics.

Source: Kubernetes API, ``admission.k8s.io/v1``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal, get_args

from msgspec import Meta, Struct
from msgspec.structs import replace

from compatgate.core.evaluate import is_allowed
from compatgate.core.request import Policy
from compatgate.core.rule import Finding, Verdict
from compatgate.core.rules.caveats import no_node_for_pod, no_pool_for_request, waived

Uid = Annotated[
    str, Meta(max_length=256, description="uid of the request; empty: the request had none")
]
EXAMPLES: dict[str, Any] = {
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
