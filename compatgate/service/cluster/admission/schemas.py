"""Define AdmissionReview for the API description.

Source: Kubernetes API, ``admission.k8s.io/v1``.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

Uid = Annotated[
    str, Meta(max_length=256, description="uid of the request; empty: the request had none")
]


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
