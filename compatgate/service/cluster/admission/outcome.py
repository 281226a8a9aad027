"""Tell how a review ended, for metrics: one word, and what it was about. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.evaluate import is_allowed
from compatgate.core.request import Policy
from compatgate.core.rule import Finding, Verdict
from compatgate.core.rules.caveats import no_node_for_pod, no_pool_for_request, waived

ReviewResult = Literal[
    "undecided", "allowed", "warned", "exempt", "unmatched", "would_deny", "denied", "failed"
]
"""Results of a review, the worst last. ``undecided``: nothing was asked, as for an object
without GPUs."""
RESULTS: tuple[ReviewResult, ...] = get_args(ReviewResult)
_RANK = {result: rank for rank, result in enumerate(RESULTS)}


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
