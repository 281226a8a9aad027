"""Ask every driver release of the facts what keeps working: the frontier.

Only the vendors' facts count here: entries can be edited and canaries run, physics stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.facts import Facts
from compatgate.core.facts.nvidia import Branch
from compatgate.core.matrix import Matrix
from compatgate.core.plan.result import DriverFrontier, FrontierRow
from compatgate.core.reevaluation import Reevaluator
from compatgate.core.request import Policy, Pool, Target, change_pool, change_stack
from compatgate.core.rule import OUTCOME_RANK
from compatgate.core.rules import BY_ID
from compatgate.core.stack import Stack
from compatgate.core.versions import Version

MAX_PAIRS = 400
"""Pairs of stack and pool that a frontier asks about each driver release."""
_MAX_REASONS = 4


class Placed(Struct, frozen=True):
    """A stack of a subject on a pool, where it works now by the facts."""

    subject: str
    stack: Stack
    pool: Pool


class FactsEvaluator:
    """Evaluates stacks by the vendors' facts alone; equal questions are evaluated once.

    Args:
        target: its name and waivers count; its policy does not.
        facts: the catalog.
        matrix: with the waivers.
        now: for ends of life and waivers.
    """

    def __init__(self, target: str, facts: Facts, matrix: Matrix, now: datetime) -> None:
        self._where = Target(target, (), Policy())
        self._evaluate = Reevaluator(facts, Matrix(matrix.revision, None, matrix.waivers), now)

    def __call__(self, stack: Stack, pool: Pool) -> tuple[int, tuple[str, ...]]:
        """Return the rank of the worst finding (as `OUTCOME_RANK`), and the rules that give it."""
        alike = replace(pool, name="pool", count=1)
        verdict = self._evaluate(stack, replace(self._where, pools=(alike,)))
        said = [f for f in verdict.findings if BY_ID[f.rule].about_facts]
        worst = max((OUTCOME_RANK[f.outcome] for f in said), default=0)
        rules = [f"{f.rule} {f.message}" for f in said if OUTCOME_RANK[f.outcome] == worst]
        return worst, tuple(rules) if worst >= OUTCOME_RANK["unknown"] else ()


def find_frontier(
    placed: Iterable[Placed],
    changes: Mapping[str, Any],
    judge: FactsEvaluator,
    facts: Facts,
) -> DriverFrontier:
    """Return what keeps working on each driver branch, with the other changes made.

    Args:
        placed: stacks that work now; those on pools without Linux drivers are left out.
        changes: of the plan; its driver does not count.
        judge: evaluates by the facts.
        facts: with the driver branches.

    Returns:
        A row for each branch with a known release. An unknown verdict does not keep a subject.
    """
    pairs = _spread([one for one in placed if one.pool.driver_os == "linux"])
    kept = [
        replace(one, stack=change_stack(one.stack, changes), pool=_change(one.pool, changes, facts))
        for one in pairs[:MAX_PAIRS]
    ]
    rows = [
        _make_row(branch, kept, judge, _releases(branch, facts))
        for branch in facts.driver_branches.branches.values()
        if branch.last is not None
    ]
    first = next((row.first for row in rows if row.first), None)
    subjects = len({one.subject for one in kept})
    return DriverFrontier(subjects, tuple(rows), first if kept else None, len(pairs) <= MAX_PAIRS)


def _spread(pairs: Iterable[Placed]) -> list[Placed]:
    """Return pairs with the first of each subject first, so that a limit leaves out no subject."""
    counts: dict[str, int] = {}
    ranked = []
    for one in pairs:
        counts[one.subject] = counts.get(one.subject, 0) + 1
        ranked.append((counts[one.subject], one))
    return [one for _, one in sorted(ranked, key=lambda pair: pair[0])]


def _change(pool: Pool, changes: Mapping[str, Any], facts: Facts) -> Pool:
    others = {name: value for name, value in changes.items() if name != "driver"}
    return change_pool(pool, others, facts.gpus)


def _releases(branch: Branch, facts: Facts) -> list[Version]:
    """Return the known Linux releases of a branch, ascending."""
    named = (toolkit.driver.get("linux") for toolkit in facts.cuda_driver.toolkits)
    known = {v for v in named if v is not None and v.major == branch.branch}
    return sorted({*known, *(v for v in (branch.first, branch.last) if v is not None)})


def _make_row(
    branch: Branch, kept: Sequence[Placed], judge: FactsEvaluator, releases: Sequence[Version]
) -> FrontierRow:
    newest = releases[-1]
    lost, open_, why = _ask(kept, judge, newest)
    subjects = {one.subject for one in kept}
    first = None
    if not lost and not open_:
        first = next(v for v in releases if not any(_ask(kept, judge, v)[:2])).text
    return FrontierRow(
        branch.branch,
        branch.type,
        newest.text,
        branch.eol,
        branch.ended,
        len(subjects) - len(lost | open_),
        tuple(sorted(lost)),
        len(open_ - lost),
        first,
        tuple(why)[:_MAX_REASONS],
    )


def _ask(
    kept: Sequence[Placed], judge: FactsEvaluator, driver: Version
) -> tuple[set[str], set[str], dict[str, None]]:
    """Return the subjects that fail on a driver, those that are unknown, and the reasons."""
    lost: set[str] = set()
    open_: set[str] = set()
    why: dict[str, None] = {}
    for one in kept:
        rank, rules = judge(one.stack, replace(one.pool, driver=driver))
        if rank >= OUTCOME_RANK["fail"]:
            lost.add(one.subject)
        elif rank >= OUTCOME_RANK["unknown"]:
            open_.add(one.subject)
        why |= {f"{one.pool.name}: {rule}": None for rule in rules}
    return lost, open_, why
