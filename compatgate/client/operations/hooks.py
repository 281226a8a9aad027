"""Webhooks, asked as other systems ask them: to try out how they are wired."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import structs

from compatgate.client.operation import Operation
from compatgate.client.request import HOOKS, Request, post
from compatgate.web.models.admission import AdmissionReview, AdmissionReviewAnswer


@Operation
def validate_kubernetes(
    review: AdmissionReview | Mapping[str, Any], *, timeout: str | None = None
) -> Request[AdmissionReviewAnswer]:
    """Decide about a Kubernetes object, as a validating admission webhook.

    Args:
        review: an AdmissionReview with its request.
        timeout: how long the answer is waited for, such as ``10s``.
    """
    request = post(
        f"{HOOKS}/kubernetes/validate",
        AdmissionReviewAnswer,
        body=review,
        reads=AdmissionReview,
        repeatable=True,
        timeout=timeout,
    )
    return structs.replace(request, refusal=True)
