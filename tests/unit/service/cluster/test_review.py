"""Reading an AdmissionReview."""

from __future__ import annotations

import json

import pytest

from compatgate.errors import BadInput
from compatgate.service.cluster.review import parse_review


@pytest.mark.parametrize(("uid", "echo"), [("a\nb", "a\nb"), ("a" * 257, ""), ("é" * 257, "")])
def test_a_uid_that_is_none_of_kubernetes_is_refused_and_sent_back_unless_too_long(
    uid: str, echo: str
) -> None:
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    found, wrong = parse_review(json.dumps({**review, "request": {"uid": uid}}).encode())
    assert found == echo
    assert isinstance(wrong, BadInput)
    assert wrong.field == "request.uid"
    assert ("longer than 256 characters" in wrong.problem) == (echo == "")
