"""AdmissionReview v1, in and out.

Source: Kubernetes API reference, ``admission.k8s.io/v1`` (AdmissionReview), and "Dynamic Admission
Control": the answer's ``uid`` is the request's; warnings beyond 256 characters may be cut off.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from msgspec import Struct

from compatgate.errors import BadInput
from compatgate.gate.admission.loose import mapping, text
from compatgate.json_once import KeyTwice, decode_once
from compatgate.not_json import NOT_JSON

API_VERSION, KIND = "admission.k8s.io/v1", "AdmissionReview"
LONGEST_UID = 256
_LONGEST_WARNING = 250
_MOST_WARNINGS = 12
_LONGEST_MESSAGE = 1500
_UID = re.compile(rb'"request"\s*:\s*\{\s*"uid"\s*:\s*"([A-Za-z0-9._:-]{1,256})"')
_ANY_UID = re.compile(rb'"uid"\s*:\s*"([A-Za-z0-9._:-]{1,256})"')
_OPERATIONS = ("CREATE", "UPDATE", "DELETE", "CONNECT")
_WITH_OBJECT = ("CREATE", "UPDATE")
_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    503: "ServiceUnavailable",
}
"""As ``metav1.StatusReason``."""


class Review(Struct, frozen=True):
    """What the API server asks about.

    Attributes:
        group: API group of the object's kind.
        document: the object; None where there is none (a deletion).
        old: the object before an update.
    """

    uid: str
    operation: str
    group: str
    kind: str
    subresource: str
    namespace: str
    dry_run: bool
    document: Mapping[str, Any] | None
    old: Mapping[str, Any] | None


class Answer(Struct, frozen=True):
    """What the API server is told.

    Attributes:
        code: HTTP status that the client of the API server sees when it is denied.
        audit: for the cluster's audit log.
    """

    allowed: bool
    message: str = ""
    code: int = 200
    warnings: tuple[str, ...] = ()
    audit: Mapping[str, str] = {}

    def to_json(self, uid: str) -> dict[str, Any]:
        """The AdmissionReview."""
        response: dict[str, Any] = {"uid": uid, "allowed": self.allowed}
        if not self.allowed:
            reason = _REASONS.get(self.code) or HTTPStatus(self.code).phrase.replace(" ", "")
            message = one_line(self.message, _LONGEST_MESSAGE)
            status = {"status": "Failure", "message": message, "reason": reason, "code": self.code}
            response["status"] = status
        if self.warnings:
            response["warnings"] = _shown(self.warnings)
        if self.audit:
            response["auditAnnotations"] = dict(self.audit)
        return {"apiVersion": API_VERSION, "kind": KIND, "response": response}


def parse_review(raw: bytes) -> tuple[str, Review | BadInput]:
    """Read a request.

    Args:
        raw: whatever came.

    Returns:
        Its uid, empty where none can be made out, and the request, or what is wrong with it.
    """
    try:
        document = mapping(decode_once(raw))
    except KeyTwice as error:
        return find_uid(raw), BadInput(str(error), field=error.key, hint="state it once")
    except (*NOT_JSON, ValueError) as error:
        return find_uid(raw), BadInput(f"the body is not JSON: {error}", field="body")
    request = mapping(document.get("request"))
    uid = text(request.get("uid"))
    if not 0 < len(uid) <= LONGEST_UID or not uid.isprintable():
        hint = "the API server names one"
        return uid, BadInput("the request has no uid", field="request.uid", hint=hint)
    version, kind = document.get("apiVersion"), document.get("kind")
    if (version, kind) != (API_VERSION, KIND):
        hint = f"{KIND} of {API_VERSION}: set admissionReviewVersions: [v1]"
        what = one_line(f"{kind} of {version}", 200)
        return uid, BadInput(f"{what} is not read here", field="apiVersion", hint=hint)
    review = _review(uid, request)
    return uid, _incomplete(review) or review


def _incomplete(review: Review) -> BadInput | None:
    """What the API server never leaves out, and without which nothing is checked."""
    hint = "as the API server sends it"
    if review.operation not in _OPERATIONS:
        what = f"is none of {', '.join(_OPERATIONS)}"
        return BadInput(what, field="request.operation", value=review.operation, hint=hint)
    if not review.kind:
        return BadInput("the kind is missing", field="request.kind.kind", hint=hint)
    if review.operation in _WITH_OBJECT and review.document is None:
        return BadInput("the object is missing", field="request.object", hint=hint)
    return None


def find_uid(raw: bytes) -> str:
    """The uid in a body that is damaged or was not read to its end; empty where it has none."""
    found = _UID.search(raw) or _ANY_UID.search(raw)
    return found[1].decode() if found else ""


def _review(uid: str, request: Mapping[str, Any]) -> Review:
    kind = mapping(request.get("kind"))
    document, old = request.get("object"), request.get("oldObject")
    inside = text(mapping(mapping(document).get("metadata")).get("namespace"))
    return Review(
        uid,
        text(request.get("operation")),
        text(kind.get("group")),
        text(kind.get("kind")),
        text(request.get("subResource")),
        text(request.get("namespace")) or inside,
        request.get("dryRun") is True,
        document if isinstance(document, dict) else None,
        old if isinstance(old, dict) else None,
    )


def one_line(said: str, most: int) -> str:
    """Text on one line, without control characters, not longer than so many characters."""
    if not said.isprintable():
        said = "".join(c if c.isprintable() else " " for c in said)
    clean = " ".join(said.split())
    return clean if len(clean) <= most else f"{clean[: most - 3]}..."


def _shown(warnings: tuple[str, ...]) -> list[str]:
    lines = list(dict.fromkeys(one_line(line, _LONGEST_WARNING) for line in warnings))
    if len(lines) > _MOST_WARNINGS:
        left = len(lines) - _MOST_WARNINGS + 1
        lines = [*lines[: _MOST_WARNINGS - 1], f"compatgate: {left} more warnings"]
    return lines
