"""Ask every driver release of the facts what keeps working: the frontier.

Only the vendors' facts count here: entries can be edited and canaries run, physics stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import zip_longest
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.evaluate import assess
from compatgate.core.facts import Facts
from compatgate.core.facts.nvidia import Branch
from compatgate.core.matrix import ANY_TARGET, Matrix
from compatgate.core.request import Policy, Pool, Target, change_pool, change_stack
from compatgate.core.rule import OUTCOME_RANK
from compatgate.core.rules import BY_ID
from compatgate.core.stack import Stack
from compatgate.core.versions import Version

MAX_PAIRS = 400  # pairs of stack and pool that a frontier asks about each driver release
_MAX_REASONS = 4
_MAX_KNOWN = 10_000  # most answers by the facts that plans share
_MAX_SHARED = 4  # most different waivers and days whose answers are kept
_UNKNOWN, _FAIL = OUTCOME_RANK["unknown"], OUTCOME_RANK["fail"]
_Judged = tuple[int, tuple[str, ...]]  # rank of the worst finding, and the rules that give it
_shared: WeakKeyDictionary[Facts, dict[tuple[bytes, str], dict[bytes, _Judged]]] = (
    WeakKeyDictionary()
)
_encode = msgspec.json.Encoder().encode


class FrontierRow(Struct, frozen=True):
    """A driver branch, and what keeps working on its newest release.

    Attributes:
        release: newest known Linux release of the branch.
        eol: last day of support (ISO date); None: no date is published.
        ended: true: support has ended.
        keeps: number of entries and stacks that keep working by the vendors' facts.
        loses: names of the entries and stacks that stop working.
        first: first known release of the branch that keeps all working; None: no release does.
    """

    branch: int
    type: str | None
    release: str
    eol: str | None
    ended: bool
    keeps: int
    loses: tuple[str, ...]
    unknown: int
    first: str | None
    why: tuple[str, ...] = ()


class DriverFrontier(Struct, frozen=True):
    """The driver branches of the facts, ascending.

    Attributes:
        subjects: number of entries and stacks that work now by the vendors' facts.
        first: oldest release in the facts that keeps every subject working; None: no release does.
        complete: true: every subject was evaluated; false: only the first ones.
    """

    subjects: int
    rows: tuple[FrontierRow, ...]
    first: str | None
    complete: bool = True


class Placed(Struct, frozen=True):
    """A stack of a subject on a pool, where it works now by the facts."""

    subject: str
    stack: Stack
    pool: Pool


class _Alike(Struct, frozen=True):
    stack: Stack
    pool: Pool
    subjects: set[str]


class FactsEvaluator:
    """Evaluates stacks by the vendors' facts and the waivers of a target alone.

    Equal questions are evaluated once. Plans that the same waivers cover share their answers of a
    day, whatever their target.
    """

    def __init__(self, target: str, facts: Facts, matrix: Matrix, now: datetime) -> None:
        self._where = Target(target, (), Policy())
        waivers = [one for one in matrix.waivers if {target, ANY_TARGET} & {*one.targets}]
        self._facts, self._now = facts, now
        self._matrix = Matrix(matrix.revision, None, waivers)
        key = (_encode(waivers), now.astimezone(UTC).date().isoformat())
        shared = _shared.setdefault(facts, {})
        if key not in shared and len(shared) >= _MAX_SHARED:
            shared.clear()
        self._known = shared.setdefault(key, {})

    def __call__(self, stack: Stack, pool: Pool) -> _Judged:
        """Return the rank of the worst finding (as `OUTCOME_RANK`), and the rules that give it."""
        alike = replace(pool, name="pool", count=1)
        key = _encode((stack, alike))
        if (known := self._known.get(key)) is None:
            where, facts = replace(self._where, pools=(alike,)), self._facts
            verdict = assess(
                stack, where, facts=facts, matrix=self._matrix, now=self._now, with_fixes=False
            )
            findings = [f for f in verdict.findings if BY_ID[f.rule].about_facts]
            worst = max((OUTCOME_RANK[f.outcome] for f in findings), default=0)
            rules = [f"{f.rule} {f.message}" for f in findings if OUTCOME_RANK[f.outcome] == worst]
            known = (worst, tuple(rules) if worst >= _UNKNOWN else ())
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            self._known[key] = known
        return known


def find_frontier(
    placed: Iterable[Placed], changes: Mapping[str, Any], judge: FactsEvaluator, facts: Facts
) -> DriverFrontier:
    """Return what keeps working on each driver branch with a known release.

    The changes apply, but for their driver. Stacks on pools without Linux drivers are left out; an
    unknown verdict does not keep a subject.
    """
    others = {name: value for name, value in changes.items() if name != "driver"}
    of_subject: dict[str, list[Placed]] = {}
    for one in placed:
        if one.pool.driver_os == "linux":
            of_subject.setdefault(one.subject, []).append(one)
    # The first of each subject comes first, so that a limit leaves out no subject.
    pairs = [one for some in zip_longest(*of_subject.values()) for one in some if one is not None]
    alike: dict[bytes, _Alike] = {}
    for one in pairs[:MAX_PAIRS]:
        stack = change_stack(one.stack, changes)
        pool = change_pool(one.pool, others, facts.gpus)
        joined = alike.setdefault(_encode((stack, pool)), _Alike(stack, pool, set()))
        joined.subjects.add(one.subject)
    kept = list(alike.values())
    shipped = {toolkit.driver.get("linux") for toolkit in facts.cuda_driver.toolkits}
    rows = [
        _make_row(branch, kept, judge, shipped)
        for branch in facts.driver_branches.branches.values()
        if branch.last is not None
    ]
    first = next((row.first for row in rows if row.first), None) if kept else None
    subjects = {name for one in kept for name in one.subjects}
    return DriverFrontier(len(subjects), tuple(rows), first, len(pairs) <= MAX_PAIRS)


def _make_row(
    branch: Branch, kept: Sequence[_Alike], judge: FactsEvaluator, shipped: set[Version | None]
) -> FrontierRow:
    """Return a branch; toolkits have shipped more of its Linux releases than the ends."""
    known = {v for v in shipped if v is not None and v.major == branch.branch}
    releases = sorted(known | {v for v in (branch.first, branch.last) if v is not None})
    newest = releases[-1]
    lost: set[str] = set()
    open_: set[str] = set()
    why: dict[str, None] = {}
    for one in kept:
        rank, rules = judge(one.stack, replace(one.pool, driver=newest))
        if rank >= _UNKNOWN:
            (lost if rank >= _FAIL else open_).update(one.subjects)
        why |= {f"{one.pool.name}: {rule}": None for rule in rules}
    first = None
    if not lost and not open_:
        first = next(
            driver.text
            for driver in releases
            if all(judge(o.stack, replace(o.pool, driver=driver))[0] < _UNKNOWN for o in kept)
        )
    subjects = {name for one in kept for name in one.subjects}
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
