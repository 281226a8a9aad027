"""Read and answer AdmissionReview v1, in one line for a denial and one for each warning.

Source: Kubernetes API reference, ``admission.k8s.io/v1`` (AdmissionReview), and "Dynamic
Admission Control": the answer's ``uid`` is the request's; warnings beyond 256 characters may be
cut off.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from msgspec import Struct

from compatgate.core.matrix import Waiver
from compatgate.core.rule import REFUSING, Finding, Verdict
from compatgate.core.rules.caveats import incomplete
from compatgate.errors import BadInput, quote_error
from compatgate.kit.kubernetes import read_mapping, read_text, to_one_line
from compatgate.service.cluster.questions import STACK_ANNOTATION, Question
from compatgate.service.cluster.schemas import UNDECIDED, ReviewOutcome, ReviewResult
from compatgate.strict_json import (
    DECODE_ERRORS,
    DuplicateKeyError,
    check_collections,
    decode_strict,
)

API_VERSION, KIND = "admission.k8s.io/v1", "AdmissionReview"
LONGEST_UID = 256
_LONGEST_WARNING = 250
_MAX_WARNINGS = 12
_BY = ("compatgate: ", "compatgate (degraded): ")
"""Beginnings of warnings: kubectl does not say who warns."""
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
    """A request of the API server; a deletion has no object, an update the one before, too."""

    uid: str
    operation: str
    group: str
    kind: str
    subresource: str
    namespace: str
    dry_run: bool
    document: Mapping[str, Any] | None
    old: Mapping[str, Any] | None


class QuestionResult(Struct, frozen=True):
    """The result of one question; without a verdict the gate was not asked."""

    question: Question
    verdict: Verdict | None
    outcome: ReviewResult
    messages: tuple[str, ...] = ()
    waiver: Waiver | None = None


class ReviewAnswer(Struct, frozen=True):
    """The answer to the API server.

    ``audit`` is for the cluster's log, ``outcome`` for metrics: it is not sent. Remarks are the
    warnings about the object and not about a question.
    """

    allowed: bool
    message: str = ""
    code: int = 200
    warnings: tuple[str, ...] = ()
    audit: Mapping[str, str] = {}
    outcome: ReviewOutcome = UNDECIDED
    results: tuple[QuestionResult, ...] = ()
    remarks: tuple[str, ...] = ()

    def to_json(self, uid: str) -> dict[str, Any]:
        """Return the AdmissionReview."""
        response: dict[str, Any] = {"uid": uid, "allowed": self.allowed}
        if not self.allowed:
            reason = _REASONS.get(self.code) or HTTPStatus(self.code).phrase.replace(" ", "")
            message = to_one_line(self.message, _LONGEST_MESSAGE)
            status = {"status": "Failure", "message": message, "reason": reason, "code": self.code}
            response["status"] = status
        if self.warnings:
            named = (line if line.startswith(_BY) else f"{_BY[0]}{line}" for line in self.warnings)
            lines = list(dict.fromkeys(to_one_line(line, _LONGEST_WARNING) for line in named))
            if len(lines) > _MAX_WARNINGS:
                left = len(lines) - _MAX_WARNINGS + 1
                lines = [*lines[: _MAX_WARNINGS - 1], f"compatgate: {left} more warnings"]
            response["warnings"] = lines
        if self.audit:
            response["auditAnnotations"] = dict(self.audit)
        return {"apiVersion": API_VERSION, "kind": KIND, "response": response}


def parse_review(raw: bytes) -> tuple[str, Review | BadInput]:
    """Return the uid of a request (empty: none, or too long), and the request or its error."""
    try:
        check_collections(raw)
        document = read_mapping(decode_strict(raw))
    except DuplicateKeyError as error:
        return find_uid(raw), BadInput(str(error), field=error.key, hint="state it once")
    except BadInput as error:
        return find_uid(raw), error
    except (*DECODE_ERRORS, ValueError) as error:
        return find_uid(raw), BadInput(f"the body is not JSON: {quote_error(error)}", field="body")
    request = read_mapping(document.get("request"))
    uid = read_text(request.get("uid"))
    hint = "send request.uid, as the API server does"
    if len(uid) > LONGEST_UID:
        what = f"longer than {LONGEST_UID} characters"
        return "", BadInput(what, field="request.uid", hint=hint)
    if not uid or not uid.isprintable():
        return uid, BadInput("the request's uid is missing", field="request.uid", hint=hint)
    version, kind = document.get("apiVersion"), document.get("kind")
    if (version, kind) != (API_VERSION, KIND):
        hint = f"{KIND} of {API_VERSION}: set admissionReviewVersions: [v1]"
        what = to_one_line(f"{kind} of {version}", 200)
        return uid, BadInput(f"{what} is not supported", field="apiVersion", hint=hint)
    review, hint = _review(uid, request), "send it as the API server does"
    if review.operation not in _OPERATIONS:
        what, operation = f"is none of {', '.join(_OPERATIONS)}", review.operation
        return uid, BadInput(what, field="request.operation", value=operation, hint=hint)
    if not review.kind:
        return uid, BadInput("the kind is missing", field="request.kind.kind", hint=hint)
    if review.operation in _WITH_OBJECT and review.document is None:
        return uid, BadInput("the object is missing", field="request.object", hint=hint)
    return uid, review


def find_uid(raw: bytes) -> str:
    """Find the uid in a damaged or truncated body; return empty text if it has none."""
    found = _UID.search(raw) or _ANY_UID.search(raw)
    return found[1].decode() if found else ""


def _review(uid: str, request: Mapping[str, Any]) -> Review:
    kind = read_mapping(request.get("kind"))
    document, old = request.get("object"), request.get("oldObject")
    inside = read_text(read_mapping(read_mapping(document).get("metadata")).get("namespace"))
    return Review(
        uid,
        read_text(request.get("operation")),
        read_text(kind.get("group")),
        read_text(kind.get("kind")),
        read_text(request.get("subResource")),
        read_text(request.get("namespace")) or inside,
        request.get("dryRun") is True,
        document if isinstance(document, dict) else None,
        old if isinstance(old, dict) else None,
    )


OPEN_IMAGE_NEED = f"annotate {STACK_ANNOTATION}, or name an image that the gate may read"
"""What settles an image that was not read."""
_LONGEST_IMAGE = 120
_SHORTEST_REASON = 60
_SHORTEST_FIX = 24
_NAMED = 5
_SAID = 2


def denial_message(question: Question, verdict: Verdict, link: str, why_not: str) -> str:
    """Return the denial of a container: rule, reason, fix and link to the verdict.

    ``link``: to the verdict; empty: the verdict is not stored.
    """
    finding = leading_finding(verdict)
    does = "may not run" if verdict.verdict == "fail" else "cannot be decided and is stopped"
    parts = [f"{describe_containers(question)} {does} on {verdict.target}"]
    if finding:
        parts[0] += f": {_finding_line(finding)}"
        is_open_image = finding.rule == incomplete.id and "image" in finding.message
        parts += _fix_of(finding) or ([f"fix: {OPEN_IMAGE_NEED}"] if is_open_image else [])
        more = sorted({f.rule for f in verdict.failing} - {finding.rule})
        if more:
            parts.append(f"also {', '.join(more)}")
    if question.possible:
        parts.append(
            f"no node selector keeps it from {verdict.target}: select nodes, "
            "or annotate compatgate.dev/target"
        )
    placed = "" if question.placed_by == "match" else f"placed by {question.placed_by}"
    return "; ".join([*parts, *filter(None, (placed, why_not, link))])


def placement_denial(question: Question, finding: Finding, why_not: str, link: str = "") -> str:
    """Return the denial of a placement, before any stack is judged."""
    said = f"{describe_containers(question)} may not run: {_finding_line(finding)}"
    return "; ".join(filter(None, (said, *_fix_of(finding), why_not, link)))


def placement_warning(
    question: Question, finding: Finding, *, would_deny: bool = False, most: int = _LONGEST_WARNING
) -> str:
    """Return the warning about the placement of an admitted container; as `verdict_warnings`."""
    on = f" on {question.target}" if question.target else ""
    said = f" would be denied{on}" if would_deny else on
    return _warning(question, said, finding, "", most)


def unmatched_message(question: Question, targets: Sequence[str], why_not: str) -> str:
    """Return the message about a GPU workload that matches no target."""
    names = ", ".join(sorted(targets)[:_NAMED]) + (", ..." if len(targets) > _NAMED else "")
    known = f" ({names})" if names else ""
    said = f"; {why_not}" if why_not else ""
    return (
        f"{describe_containers(question)} uses GPUs and matches no target, so nothing was checked; "
        f"annotate compatgate.dev/target{known}{said}"
    )


def verdict_warnings(
    question: Question,
    verdict: Verdict,
    link: str = "",
    *,
    would_deny: bool = False,
    most: int = _LONGEST_WARNING,
) -> list[str]:
    """Return the warnings about an admitted container; none if the verdict is a pass."""
    on = f" on {verdict.target}"
    said = f" would be denied{on} (mode {verdict.mode})" if would_deny else on
    first = leading_finding(verdict)
    shown = [*([first] if first else []), *(f for f in verdict.failing if f is not first)]
    return [_warning(question, said, finding, link, most) for finding in shown[:_SAID]]


def _warning(question: Question, said: str, finding: Finding, link: str, most: int) -> str:
    """Return a warning of one line, of which only the reason and the fix are cut."""
    begin = f"compatgate: {_containers_word(question)} {_join_names(question.containers)}{said}: "
    end = f"; {link}" if link else ""
    left = max(_SHORTEST_REASON, most - len(begin) - len(end))
    reason = to_one_line(_finding_line(finding), left)
    for fix in _fix_of(finding):
        rest = left - len(reason) - len("; ")
        if rest >= _SHORTEST_FIX:
            reason += f"; {to_one_line(fix, rest)}"
    return f"{begin}{reason}{end}"


def exemption_message(question: Question, waiver: Waiver, verdict: Verdict | None) -> str:
    """Return the warning that a waiver exempts a denied container."""
    finding = leading_finding(verdict) if verdict else question.finding
    what = f"denied by {finding.rule}" if finding else "without a target"
    return (
        f"compatgate: {_containers_word(question)} {_join_names(question.containers)} is {what}, "
        f"exempt by waiver {waiver.name} until {waiver.expires} ({waiver.owner})"
    )


def leading_finding(verdict: Verdict) -> Finding | None:
    """Return the finding to name: an open point first, because the others depend on it."""
    left = verdict.stack.get("open", ())
    weighing = (f for f in verdict.findings if f.outcome in REFUSING)
    found = (f for f in weighing if any(said in f.message for said in left))
    return next(found, verdict.failing[0] if verdict.failing else None)


def describe_containers(question: Question) -> str:
    """Describe the containers of a question and their image."""
    image = to_one_line(question.image, _LONGEST_IMAGE)
    named = f"{_containers_word(question)} {_join_names(question.containers)}"
    return named + (f" ({image})" if image else "")


def _containers_word(question: Question) -> str:
    return "containers" if len(question.containers) > 1 else "container"


def _join_names(names: Iterable[str]) -> str:
    shown = [to_one_line(name, 64) for name in names]
    left = f" and {len(shown) - _NAMED} more" if len(shown) > _NAMED else ""
    return f"{', '.join(shown[:_NAMED])}{left}"


def _finding_line(finding: Finding) -> str:
    return f"{finding.rule} {finding.message}"


def _fix_of(finding: Finding) -> list[str]:
    return [f"fix: {finding.fixes[0].message}"] if finding.fixes else []


_DEFAULT_WAIT = 10.0
_LONGEST_WAIT = 30.0
_MARGIN = 0.9
"""Share of the API server's timeout that is used; the rest is for the network."""
_DURATION = re.compile(r"(?:(\d{1,3})m)?(?:(\d{1,5}(?:\.\d{1,9})?)(ms|s))?")


def parse_timeout(text: str) -> float:
    """Return the seconds for an answer, from a ``timeout`` like ``10s``, ``1m30s``, ``500ms``."""
    found = _DURATION.fullmatch(text.strip())
    seconds = 0.0
    if found and text.strip():
        seconds = 60 * int(found[1] or 0)
        seconds += float(found[2] or 0) / (1000 if found[3] == "ms" else 1)
    return min(seconds or _DEFAULT_WAIT, _LONGEST_WAIT) * _MARGIN
