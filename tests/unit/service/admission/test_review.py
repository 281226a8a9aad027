"""Reading an AdmissionReview."""

from __future__ import annotations

import json

import pytest

from compatgate.errors import BadInput
from compatgate.service.admission.review import parse_review


@pytest.mark.parametrize("uid", ["a\nb", "a" * 300])
def test_a_uid_that_is_none_of_kubernetes_is_refused_and_sent_back(uid: str) -> None:
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    found, wrong = parse_review(json.dumps({**review, "request": {"uid": uid}}).encode())
    assert found == uid
    assert isinstance(wrong, BadInput)
