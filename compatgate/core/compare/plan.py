"""Plan an upgrade: everything in use before and after, grouped by cause, and what is to be done.

Physics comes before paperwork: a stack that the vendors' facts break is in no other group, and an
entry is edited only where its own range is all that stands in the way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from compatgate.core.compare.differences import (
    CAUSES,
    CHANGE_ORDER,
    Cause,
    Subject,
    TargetDifferences,
    cause_of,
    count_things,
    weight_of,
)
from compatgate.core.compare.frontier import DriverFrontier, FactsEvaluator, Placed, find_frontier
from compatgate.core.compare.upgrades import EntryEdit, RangeChange, branches_between, edit_entry
from compatgate.core.compare.waves import RACK_LABELS, PlannedNode, UpgradeOrder, order_upgrade
from compatgate.core.compare.what_if import what_if
from compatgate.core.compare.worlds import Evaluator, State
from compatgate.core.entry_evidence import index_runs, judge_candidate
from compatgate.core.entry_stacks import StackSamples
from compatgate.core.facts import Facts
from compatgate.core.matrix import STATUSES_IN_USE, Entry, EntryIndex, Matrix
from compatgate.core.request import Pool, Target, change_pool, change_stack
from compatgate.core.rule import OUTCOME_RANK, Finding, FindingOutcome
from compatgate.core.stack import parse_stack


class Question(Struct, frozen=True):
    """The subject of a plan."""

    target: Target
    pools: tuple[Pool, ...]  # of the target that change
    changes: dict[str, Any]  # resolved to versions, as of `compatgate.core.compare.what_if.what_if`
    # stacks that the gate has allowed there, to be evaluated pool by pool
    running: tuple[Subject, ...] = ()
    nodes: tuple[PlannedNode, ...] = ()
    rack_labels: tuple[str, ...] = RACK_LABELS  # labels whose value names a rack
    remarks: tuple[str, ...] = ()  # on how the changes were chosen, and on what was left out


class CauseGroup(Struct, frozen=True):
    """A reason why subjects get worse, with all these subjects.

    Attributes:
        cause: the vendors' ``facts``, the ``matrix``, or missing ``evidence``.
        fix: smallest verified change, in words; None: no change is known.
    """

    cause: Cause
    rule: str
    name: str
    outcome: FindingOutcome
    message: str
    fix: str | None
    pools: tuple[str, ...]
    entries: tuple[str, ...]
    stacks: tuple[str, ...]


class OwedRun(Struct, frozen=True):
    """A canary suite that the policy asks for on the new driver.

    Attributes:
        required: true: the policy denies without this evidence; false: advice.
        failed: id of a failed run; None: no run was judged recently.
    """

    sku: str
    driver: str
    suite: str
    required: bool
    entries: tuple[str, ...]
    failed: str | None = None


class Plan(TargetDifferences, frozen=True, kw_only=True):
    """The plan of an upgrade."""

    # why subjects get worse: facts first, then matrix, then evidence
    groups: tuple[CauseGroup, ...]
    edits: tuple[EntryEdit, ...]  # edits of entries that only the matrix breaks
    owed: tuple[OwedRun, ...]
    frontier: DriverFrontier
    order: UpgradeOrder
    entries_yaml: str = ""  # the edited entries as documents; empty: the documents are not known

    @property
    def summary(self) -> str:
        """Return the answer in one line."""
        if not self.subjects and not self.host:
            nothing = "no blessed entries and no running stacks, so nothing was evaluated"
            return f"{self.about}: {nothing}"
        causes = [one.cause for one in self.of("breaks")]
        physics = causes.count("facts")
        paperwork = len(causes) - causes.count(None) - physics
        parts = [f"facts break {count_things(physics, 'stack')}"] if physics else []
        if paperwork:
            parts += [] if physics else ["no vendor fact breaks"]
            need = "needs" if paperwork == 1 else "need"
            stacks = count_things(paperwork, "stack")
            parts.append(f"{stacks} {need} an edited entry or a canary run")
        if unknown := [s for s in self.subjects if s.is_open and s.change != "breaks"]:
            parts.append(f"{len(unknown)} not known to work")
        if any(finding.outcome == "fail" for finding in self.host):
            parts.insert(0, "pools that the driver does not support")
        entries = sum(one.kind == "entry" for one in self.subjects)
        running = len(self.subjects) - entries
        total = f"{count_things(entries, 'entry')} and {count_things(running, 'running stack')}"
        return f"{self.about}: {'; '.join(parts) if parts else 'breaks nothing'} (of {total})"


def make_plan(asked: Question, *, facts: Facts, matrix: Matrix, now: datetime) -> Plan:
    """Return the plan of an upgrade."""
    return _Planner(asked, facts, matrix, now).make()


class _Planner:
    def __init__(self, asked: Question, facts: Facts, matrix: Matrix, now: datetime) -> None:
        self._asked, self._facts, self._matrix, self._now = asked, facts, matrix, now
        self._moves = [(pool, change_pool(pool, asked.changes, facts.gpus)) for pool in asked.pools]
        changed = {before.name: after for before, after in self._moves}
        pools = tuple(changed.get(pool.name, pool) for pool in asked.target.pools)
        self._after = replace(asked.target, pools=pools)
        self._physics = FactsEvaluator(asked.target.name, facts, matrix, now)
        self._samples = StackSamples(facts, matrix)

    def make(self) -> Plan:
        asked, changes, facts = self._asked, self._asked.changes, self._facts
        known: dict[str, Any] = {"facts": facts, "matrix": self._matrix, "now": self._now}
        effects = what_if(asked.target, asked.pools, changes, **known, running=asked.running)
        subjects = sorted(effects.subjects, key=_rank)
        edited = self._edit_entries(subjects)
        owed = self._list_owed(subjects, edited)
        return Plan(
            **{**asdict(effects), "subjects": tuple(subjects), "remarks": asked.remarks},
            groups=_group(subjects),
            edits=self._describe_edits(edited),
            owed=owed,
            frontier=find_frontier(self._place(), changes, self._physics, facts),
            order=order_upgrade(
                asked.pools,
                asked.nodes,
                changes.get("driver"),
                _hold(subjects, effects.host),
                _list_needed(asked.pools, edited, owed),
                asked.rack_labels,
            ),
        )

    def _edit_entries(self, subjects: Iterable[Subject]) -> list[tuple[Entry, Entry]]:
        """Return the entries that only the matrix breaks, each before and after its edit."""
        broken = {
            one.name: one.row
            for one in subjects
            if one.row and one.change == "breaks" and one.cause == "matrix"
        }
        return [
            (entry, edited)
            for _, entry in sorted(broken.items())
            if (edited := edit_entry(entry, self._asked.changes)) is not None
        ]

    def _describe_edits(self, edited: Sequence[tuple[Entry, Entry]]) -> tuple[EntryEdit, ...]:
        """Describe edits, and verify them together: the edited matrix blesses the new stacks."""
        matrix, after, changes = self._matrix, self._after, self._asked.changes
        new = {old.name: replace(entry, status=old.status) for old, entry in edited}
        entries = EntryIndex([new.get(one.name, one) for one in matrix.entries.of(after.name)])
        tried = matrix.replace(entries=entries)
        evaluate = Evaluator(State(self._facts, tried), self._now)
        edits = []
        for old, entry in edited:
            pools = [pair for pair in self._moves if old.is_for(pair[0])]
            stacks, _ = self._samples.of(old, [before for before, _ in pools])
            verdicts = [
                evaluate(change_stack(of_pool[0], changes), replace(after, pools=(pool,)))
                for (_, pool), of_pool in zip(pools, stacks, strict=True)
                if of_pool
            ]
            blessed = [weight_of(one, "matrix") < OUTCOME_RANK["unknown"] for one in verdicts]
            between: tuple[str, ...] = ()
            if "driver" in entry.components:
                ranges = old.components["driver"], entry.components["driver"]
                between = branches_between(*ranges, changes.get("driver"), self._facts)
            ranges_of = {
                name: RangeChange(old.components[name].text, constraint.text)
                for name, constraint in entry.components.items()
                if constraint != old.components[name]
            }
            verified = bool(blessed) and all(blessed)
            edits.append(EntryEdit(old.name, entry.name, ranges_of, list(between), verified))
        return tuple(edits)

    def _list_owed(
        self, subjects: Iterable[Subject], edited: Sequence[tuple[Entry, Entry]]
    ) -> tuple[OwedRun, ...]:
        """Return the runs that entries lack on the changed pools, unless physics breaks them."""
        alive = {s.name for s in subjects if not (s.change == "breaks" and s.cause == "facts")}
        new = {old.name: entry for old, entry in edited}
        runs = index_runs(self._matrix.evidence)
        where = replace(self._after, pools=tuple(pool for _, pool in self._moves))
        owed: dict[tuple[str, str, str], OwedRun] = {}
        for entry in self._matrix.entries.of(where.name):
            if entry.status not in STATUSES_IN_USE or entry.name not in alive:
                continue
            changed = replace(new.get(entry.name, entry), targets=(where.name,))
            needs = judge_candidate(changed, [where], runs, self._now.timestamp()).needs
            for need in needs:
                key = (need.sku, need.driver, need.suite)
                known = owed.get(key) or OwedRun(*key, where.policy.canary.require, ())
                names = tuple(dict.fromkeys((*known.entries, changed.name)))
                owed[key] = replace(known, entries=names, failed=known.failed or need.failed)
        return tuple(owed[key] for key in sorted(owed))

    def _place(self) -> list[Placed]:
        """Return the stacks in use on each pool, where they work now by the facts."""
        asked = self._asked
        placed = []
        for entry in self._matrix.entries.of(asked.target.name):
            if entry.status in STATUSES_IN_USE:
                pools = [pool for pool in asked.pools if entry.is_for(pool)]
                stacks, _ = self._samples.of(entry, pools)
                for pool, of_pool in zip(pools, stacks, strict=True):
                    placed += [Placed(entry.name, stack, pool) for stack in of_pool]
        for one in asked.running:
            stack = parse_stack(one.stack, image=one.image)
            pools = [p for p in asked.pools if not one.within or p.name in one.within]
            placed += [Placed(one.name, stack, pool) for pool in pools]
        usable = OUTCOME_RANK["unknown"]
        return [one for one in placed if self._physics(one.stack, one.pool)[0] < usable]


def _rank(subject: Subject) -> tuple[int, int, int, str, str]:
    return (
        -CHANGE_ORDER[subject.change],
        CAUSES.index(subject.cause) if subject.cause else len(CAUSES),
        -subject.decisions,
        subject.kind,
        subject.name,
    )


def _group(subjects: Iterable[Subject]) -> tuple[CauseGroup, ...]:
    """Group new findings by rule and message; physics hides paperwork of the same pool."""
    groups: dict[tuple[str, str], CauseGroup] = {}
    for subject in subjects:
        for pool in subject.pools:
            fails = {cause_of(f) for f in pool.lost if f.outcome == "fail"}
            for finding in pool.lost:
                if "facts" not in fails or cause_of(finding) == "facts":
                    key = (finding.rule, finding.message)
                    groups[key] = _add(groups.get(key), finding, subject, pool.pool)
    return tuple(
        sorted(
            groups.values(),
            key=lambda g: (
                CAUSES.index(g.cause), -OUTCOME_RANK[g.outcome], -len(g.entries) - len(g.stacks),
                g.rule, g.message,
            ),
        )
    )  # fmt: skip


def _add(known: CauseGroup | None, finding: Finding, subject: Subject, pool: str) -> CauseGroup:
    fix, cause = finding.fixes[0].message if finding.fixes else None, cause_of(finding)
    rule, name, outcome, message = finding.rule, finding.name, finding.outcome, finding.message
    group = known or CauseGroup(cause, rule, name, outcome, message, fix, (), (), ())
    entry, stack = ((subject.name,), ()) if subject.kind == "entry" else ((), (subject.name,))
    return replace(
        group,
        outcome=max(group.outcome, finding.outcome, key=OUTCOME_RANK.__getitem__),
        fix=group.fix or fix,
        pools=tuple(dict.fromkeys((*group.pools, pool))),
        entries=tuple(dict.fromkeys((*group.entries, *entry))),
        stacks=tuple(dict.fromkeys((*group.stacks, *stack))),
    )


def _hold(subjects: Iterable[Subject], host: Iterable[Finding]) -> dict[str, str]:
    held: dict[str, str] = {}
    for finding in host:
        if finding.outcome == "fail":
            for name in finding.pools:
                held.setdefault(name, f"{finding.rule} {finding.message}")
    for subject in subjects:
        for pool in subject.pools:
            if pool.change == "breaks" and pool.cause == "facts":
                held.setdefault(pool.pool, f"the facts break {subject.name} on it")
    return held


def _list_needed(
    pools: Iterable[Pool], edited: Sequence[tuple[Entry, Entry]], owed: Sequence[OwedRun]
) -> dict[str, tuple[str, ...]]:
    return {
        pool.name: (
            *(f"run suite {r.suite}" for r in owed if pool.gpu and r.sku == pool.gpu.sku),
            *(f"edit entry {old.name}" for old, _ in edited if old.is_for(pool)),
        )
        for pool in pools
    }
