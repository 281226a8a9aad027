"""Pool the judged runs that cover a question, and answer it by all of them.

Runs of one GPU content, suite, SKU and driver form a pool. A pool passes when at least one of its
runs passed and none failed: a rerun adds to the pool and takes nothing back, and the order of the
runs does not matter. A failure leaves the pool when it is older than the policy allows, or when a
person discards the run with a reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct

from compatgate.core.binding import Bind, SuiteDefinition, find_digest
from compatgate.core.matrix import Evidence
from compatgate.core.stack import Stack
from compatgate.core.versions import Version

State = Literal["passed", "failed", "stale"]
TOO_OLD = "is older than the policy allows"  # the reason why a pool with old runs is stale


class Coverage(Struct, frozen=True):
    """The runs that are about a stack."""

    runs: tuple[Evidence, ...]  # judged runs, in any order
    by: Bind  # what they share with the stack
    # where no run covers the stack by what the policy asks for, those with its versions that are
    # bound to something else
    others: tuple[Evidence, ...] = ()


class RunPool(Struct, frozen=True):
    """The pooled answer of judged runs."""

    # ``stale``: the runs passed, but too long ago, on another driver, or with another definition of
    # the suite
    state: State
    runs: tuple[Evidence, ...]  # that are pooled, the newest first; at least one
    why: str = ""  # why it is stale, in words
    until: float | None = None  # when the answer may differ, in seconds since the epoch

    @property
    def newest(self) -> Evidence:
        """Return the newest run."""
        return self.runs[0]

    @property
    def failed(self) -> tuple[Evidence, ...]:
        """Return the runs that failed, the newest first."""
        return tuple(run for run in self.runs if run.outcome == "failed")

    @property
    def words(self) -> str:
        """Return ``2 of 5 passed``."""
        return f"{len(self.runs) - len(self.failed)} of {len(self.runs)} passed"


def find_coverage(runs: Iterable[Evidence], stack: Stack, bind: Bind) -> Coverage:
    """Return the runs that cover a stack.

    By content, runs of the same GPU content cover a stack whose content is known; where no run of
    it is known, runs whose content is unknown cover it by their versions. A stack that states no
    content is covered by versions. By image, only runs of the image's own digest count. A failed
    run of the same image covers the stack also if its content could not be read.
    """
    judged = [run for run in runs if run.outcome != "inconclusive"]
    digest = find_digest(stack.image) if bind == "image" else None
    if bind == "image":
        own = [r for r in judged if digest is not None and r.bound and r.bound.is_of_image(digest)]
    elif bind == "content" and stack.content is not None:
        own = [run for run in judged if run.content == stack.content]
    else:
        own = []
    if own := [run for run in own if not run.contradicts(stack)]:
        images = {find_digest(stack.image), *(run.bound.image for run in own if run.bound)} - {None}
        unread = (
            run
            for run in judged
            if run.outcome == "failed" and run.content is None and run not in own
            if run.bound is not None and run.bound.image in images
        )
        return Coverage((*own, *unread), bind)
    alike = tuple(run for run in judged if run.is_about(stack))
    if bind == "image":
        return Coverage((), bind, alike)
    if bind == "versions" or stack.content is None:
        return Coverage(alike, "versions")
    known = tuple(run for run in alike if run.content is not None)
    return Coverage(tuple(run for run in alike if run.content is None), "versions", known)


def pool_runs(
    runs: Sequence[Evidence],
    *,
    driver: Version | None,
    definition: SuiteDefinition | None,
    max_age_s: float,
    now: float,
) -> RunPool | None:
    """Return the pooled answer of runs; None: there are none.

    Runs with the suite's present definition, on this driver and young enough are pooled; where one
    of these leaves no run, the answer is stale at best.

    Args:
        driver: of the pool of nodes; None: any.
        definition: of the suite now; None: unknown, so no run is stale for it.
        max_age_s: seconds for which a run counts.
        now: seconds since the epoch.
    """
    if not runs:
        return None
    current = [run for run in runs if not _what_changed(run, definition)]
    own = [run for run in current or runs if driver is None or run.driver == driver]
    left = own or current or runs
    young = [run for run in left if run.finished + max_age_s >= now]
    pooled = _order(young) if young else _order(left)[:1]
    # Leave out runs that state no binding, unless the newest is one: then it speaks alone
    if pooled[0].bound is None:
        pooled = pooled[:1]
    else:
        pooled = tuple(run for run in pooled if run.bound is not None)
    newest = pooled[0]
    failed = [run for run in pooled if run.outcome == "failed"]
    if failed:
        until = max(run.finished for run in failed) + max_age_s
        return RunPool("failed", pooled, until=until if until >= now else None)
    if changed := _what_changed(newest, definition):
        why = f"tested an earlier version: suite {newest.suite} changed since the run ({changed})"
        return RunPool("stale", pooled, why)
    if driver is not None and newest.driver != driver:
        return RunPool("stale", pooled, f"was on driver {newest.driver}, the pool has {driver}")
    if not young:
        return RunPool("stale", pooled, TOO_OLD)
    return RunPool("passed", pooled, until=newest.finished + max_age_s)


def _order(runs: Iterable[Evidence]) -> tuple[Evidence, ...]:
    """Return runs, the newest first, in an order that does not depend on that of the input."""
    return tuple(sorted(runs, key=lambda run: (run.finished, run.id), reverse=True))


def _what_changed(run: Evidence, definition: SuiteDefinition | None) -> str:
    return definition.changed_since(run.bound) if definition and run.bound else ""
