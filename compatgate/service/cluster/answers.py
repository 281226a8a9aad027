"""Join the verdicts about an object to one answer: denials, exemptions and warnings."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from msgspec import Struct

from compatgate.core.rule import Verdict
from compatgate.errors import CompatgateError, Unavailable
from compatgate.kit import clock
from compatgate.service.cluster import review as messages
from compatgate.service.cluster.questions import Question, check_exemption
from compatgate.service.cluster.review import QuestionResult, Review, ReviewAnswer
from compatgate.service.cluster.schemas import (
    FAILED,
    ReviewOutcome,
    result_of_placement,
    result_of_verdict,
    weightiest,
)

if TYPE_CHECKING:
    from compatgate.service.cluster.admission import (
        AdmissionOptions,
        OpenReview,
        PreviewGate,
        ReviewContext,
    )
    from compatgate.service.gate.questions.service import Gate

_log = logging.getLogger("compatgate.gate")


class AskedResult(Struct, frozen=True):
    """A question with its verdict, or with the error that kept it from one."""

    question: Question
    verdict: Verdict | None = None
    error: CompatgateError | None = None


class AnswerMaker:
    """Makes the answers to the API server."""

    def __init__(self, gate: Gate | PreviewGate, options: AdmissionOptions) -> None:
        self._gate = gate
        self._options = options

    def conclude(self, results: list[AskedResult], opened: OpenReview) -> ReviewAnswer:
        """Return the answer about an object whose questions are decided."""
        remarks = opened.questions.remarks
        for result in results:
            if result.error is None:
                continue
            if result.error.status >= 500 or isinstance(result.error, Unavailable):
                return self.failed(result.error.detail, opened.asked)
            about = messages.describe_containers(result.question)
            said = f"compatgate: {about}: {result.error.detail}"
            return refuse_as_written(said, remarks)
        weighed = tuple(self._weigh(result, opened.review, opened.asked) for result in results)
        denials = [said for one in weighed if one.outcome == "denied" for said in one.messages]
        warnings = [said for one in weighed if one.outcome != "denied" for said in one.messages]
        if (degraded := self._gate.degraded()) is not None:
            warnings.append(f"compatgate (degraded): {degraded.sentence}")
        outcome = _conclude_outcome(weighed, denials)
        return ReviewAnswer(
            not denials,
            outcome.reason if denials else "",
            403 if denials else 200,
            (*remarks, *warnings),
            _audit_annotations(results),
            outcome,
            weighed,
            remarks,
        )

    def _weigh(
        self, asked_one: AskedResult, review: Review, asked: ReviewContext
    ) -> QuestionResult:
        question, verdict = asked_one.question, asked_one.verdict
        if verdict is not None and verdict.allowed:
            return self._admit(question, verdict, review, asked)
        finding = question.finding
        if finding is not None and finding.outcome != "fail":
            result = result_of_placement(finding, is_pod=review.kind == "Pod")
            would_deny = result == "would_deny"
            text = messages.placement_warning(question, finding, would_deny=would_deny)
            return QuestionResult(question, None, result, (text,))
        if verdict is None and finding is None:
            asked.unmatched()
            if self._options.unmatched == "allow":
                return QuestionResult(question, None, "unmatched")
        snapshot = self._gate.snapshot()
        today = clock.now().date().isoformat()
        judged = None if finding else verdict
        found = check_exemption(
            question, judged, review.namespace, self._options.exemptions, snapshot.waivers, today
        )
        if found.waiver:
            said = (messages.exemption_message(question, found.waiver, judged),)
            return QuestionResult(question, verdict, "exempt", said, found.waiver)
        if finding is not None:
            link = asked.link(verdict.id) if verdict is not None else ""
            denial = messages.placement_denial(question, finding, found.why_not, link)
        elif verdict is not None:
            link = "" if review.dry_run else asked.link(verdict.id)
            denial = messages.denial_message(question, verdict, link, found.why_not)
        else:
            denial = messages.unmatched_message(question, list(snapshot.targets), found.why_not)
            if self._options.unmatched != "deny":
                return QuestionResult(question, None, "unmatched", (f"compatgate: {denial}",))
        return QuestionResult(question, verdict, "denied", (denial,))

    def _admit(
        self, question: Question, verdict: Verdict, review: Review, asked: ReviewContext
    ) -> QuestionResult:
        """Warn about what is wrong with an admitted container, and whether it would be denied."""
        if verdict.verdict == "pass":
            return QuestionResult(question, verdict, "allowed")
        target = self._gate.snapshot().targets.get(verdict.target or "")
        result = result_of_verdict(verdict, target.policy if target else None)
        link = "" if review.dry_run else asked.link(verdict.id)
        said = messages.verdict_warnings(question, verdict, link, would_deny=result == "would_deny")
        return QuestionResult(question, verdict, result, tuple(said))

    def failed(self, why: str, asked: ReviewContext) -> ReviewAnswer:
        """Answer with the operator's choice for failures."""
        asked.failed()
        _log.error("admission failed: %s", why)
        if self._options.on_failure == "deny":
            message = f"compatgate cannot decide and is set to deny: {why}; try again"
            return ReviewAnswer(False, message, 503, outcome=FAILED)
        said = f"compatgate: nothing was checked, because the gate could not decide: {why}"
        return ReviewAnswer(True, warnings=(said,), outcome=FAILED)


def refuse_as_written(said: str, remarks: tuple[str, ...] = ()) -> ReviewAnswer:
    """Return the denial of an object that cannot be decided as it is written."""
    return ReviewAnswer(False, said, 422, remarks, outcome=ReviewOutcome("denied", reason=said))


def _conclude_outcome(results: tuple[QuestionResult, ...], denials: list[str]) -> ReviewOutcome:
    """Return how a review ended; name the targets that would deny in mode ``enforce``."""
    would = [one for one in results if one.outcome == "would_deny"]
    targets = tuple(one.question.target or "" for one in would)
    said = denials or [text for one in would for text in one.messages[:1]]
    more = f" (and {len(said) - 1} more)" if len(said) > 1 else ""
    ended = weightiest(one.outcome for one in results)
    return ReviewOutcome(ended, targets, f"{said[0]}{more}" if said else "")


def _audit_annotations(results: list[AskedResult]) -> dict[str, str]:
    """Return verdicts by target, and rules of placement, for the cluster's audit log."""
    found = dict.fromkeys(
        f"{r.verdict.target}={r.verdict.verdict}:{r.verdict.id}" for r in results if r.verdict
    )
    said = {"verdicts": " ".join(found)[:4096]} if found else {}
    placed = dict.fromkeys(
        f"{r.question.target}={r.question.placed_by}" for r in results if r.question.target
    )
    if placed:
        said["placed-by"] = " ".join(placed)[:4096]
    rules = dict.fromkeys(r.question.finding.rule for r in results if r.question.finding)
    if rules:
        said["placement"] = " ".join(rules)
    return said or {"matched": "false"}
