"""Run candidate and reference in pairs: blocks in the order A B, B A, each a fresh process.

Five pairs are run, then further pairs of the workloads for which the judge asks. The steps of one
pair follow each other, and both blocks of a step follow each other directly, so that clocks and
temperature drift little between them.

Each block is stored when it ends. Another attempt keeps pairs that are complete, of the same images
and of the same content of the workload, since such a pair lies in one session. It runs any other
pair from its beginning. A block that failed is kept, so that no attempt hides a failure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Literal

from msgspec.structs import replace

from compatgate.canary.engine import HostContext, Lease
from compatgate.canary.engine.pair_results import (
    ARMS,
    BlockRecord,
    conclude_steps,
    describe_progress,
    describe_state,
    judge_record,
    learn_knowledge,
)
from compatgate.canary.engine.steps import Step, StepRunner
from compatgate.canary.executors import Executor, PreparedJob
from compatgate.canary.forecast import expect_pairs
from compatgate.canary.judge.paired.blocks import (
    FIRST_LOOK,
    USUAL_PAIRS,
    Arm,
    PairedJudgement,
    PairsState,
)
from compatgate.canary.run import BY_HISTORY, BlockPosition, StepResult
from compatgate.errors import CompatgateError, Unavailable

Jobs = Mapping[Arm, PreparedJob]


_ELSEWHERE = "name a docker or kubernetes host, or a slurm host with allocation = 'run'"
_HINTS = {
    "process": f"a process host runs no images, so the arms would be the same: {_ELSEWHERE}",
    "slurm": "set allocation = 'run', so that both images run on one node",
}


_LOOKED_FOR = ("auto", BY_HISTORY)
"""Requests whose reference was only looked for, so that a run continues without it."""


class ReferenceUnusable(Exception):
    """The reference that was only looked for cannot be run; the candidate is judged alone."""


def check_pairs(lease: Lease, context: HostContext) -> bool:
    """Return whether the run compares with a reference on this host.

    Where the reference was only looked for and the host runs no pairs, the candidate is judged
    alone, and the run says so.
    """
    against = lease.run.against
    if against is None or against.image is None:
        return False
    if context.executor.runs_pairs:
        return True
    problem = f"the {context.executor.kind} host {lease.host} runs no pairs"
    if against.asked not in _LOOKED_FOR:
        hint = _HINTS.get(context.executor.kind, _ELSEWHERE)
        raise CompatgateError(problem, field="against", value=against.asked, hint=hint)
    reason = f"{problem}: the candidate is judged alone"
    context.queue.compare(lease, PairsState("inconclusive", reason))
    return False


def is_compared(jobs: Jobs, executor: Executor) -> bool:
    """Return whether the workload takes pairs, the arms differ, and the host can run both.

    A workload with its own image runs in the same image twice.
    """
    a, b = jobs["A"], jobs["B"]
    can = a.job.workload.nodes == 1 or executor.pairs_nodes
    return a.job.workload.paired and can and (a.image, a.tool) != (b.image, b.tool)


class PairSession:
    """Session of one leased run with a reference."""

    def __init__(self, steps: StepRunner, lease: Lease, context: HostContext) -> None:
        self._steps = steps
        self._lease = lease
        self._context = context
        self._queue = context.queue
        self._judged: PairedJudgement | None = None
        self._expected = 0
        self._images: dict[Arm, str] = {}
        self._single: tuple[str, ...] = ()
        self._alone: tuple[str, ...] = ()

    def prepare(self, planned: Sequence[Step]) -> dict[str, Jobs]:
        """Prepare both images for each step; return the jobs by name of the step."""
        candidates = {step.name: self._steps.prepare(step) for step in planned}
        references = {step.name: self._prepare_reference(step) for step in planned}
        jobs: dict[str, Jobs] = {
            name: {"A": references[name], "B": candidate} for name, candidate in candidates.items()
        }
        alike = [
            step for step in planned if not is_compared(jobs[step.name], self._context.executor)
        ]
        self._single = tuple(dict.fromkeys(step.workload.name for step in alike))
        self._alone = tuple(step.name for step in alike)
        if len(alike) == len(planned):
            reason = "nothing to compare: candidate and reference run in the same image"
            if any(step.workload.nodes > 1 for step in alike):
                reason += ", or the host cannot run both on the same nodes"
            if long := [step.name for step in alike if not step.workload.paired]:
                reason += f", or take too long for pairs ({', '.join(long)})"
            state = PairsState("inconclusive", reason, single=self._single)
            self._queue.compare(self._lease, state)
        return jobs

    def _prepare_reference(self, step: Step) -> PreparedJob:
        against = self._lease.run.against
        assert against is not None  # noqa: S101 - check_pairs has been asked
        try:
            return self._steps.prepare(step, against.image)
        except Unavailable:
            raise
        except CompatgateError as error:
            if against.asked not in _LOOKED_FOR:
                raise
            reason = f"the reference cannot be run ({error.detail}): the candidate is judged alone"
            self._queue.compare(self._lease, PairsState("inconclusive", reason))
            raise ReferenceUnusable from error

    def run(
        self, compared: Sequence[Step], jobs: Mapping[str, Jobs], stored: Sequence[StepResult]
    ) -> list[StepResult]:
        """Run the pairs of at least one step, and return the result of each."""
        record = _restore(compared, jobs, stored)
        self._images = {arm: jobs[compared[0].name][arm].image for arm in ARMS}
        explained = self._lease.run.explained
        earlier = self._queue.earlier_pairs(self._lease)
        self._expected = expect_pairs([step.workload for step in compared], earlier)
        known = learn_knowledge(compared, earlier, explained)
        every = [jobs[step.name][arm] for step in compared for arm in ARMS]
        with self._context.executor.hold(every) as executor:
            for pair, steps in self._list_pairs(record):
                self._run_pair(executor, record, pair, steps, jobs)
                self._judged = judge_record(record, known)
                state = describe_state(record, self._judged, self._images, self._single)
                self._queue.compare(self._lease, replace(state, outcome=None))
        judged = self._judged or judge_record(record, known)
        against = self._lease.run.against
        reference = (against.entry or against.image or "") if against else ""
        judge_alone = partial(self._context.judge.judge, explained=explained)
        results = conclude_steps(record, judged, reference, judge_alone)
        state = describe_state(record, judged, self._images, self._single)
        if record.trouble("A") or record.trouble("B"):
            failed = [result for result in results if result.outcome == "failed"]
            stopped = next(r for r in (*failed, *results) if r.outcome != "passed")
            outcome: Literal["failed", "inconclusive"] = "failed" if failed else "inconclusive"
            state = replace(state, outcome=outcome, reason=stopped.reason)
        self._queue.compare(self._lease, state)
        for result in results:
            self._queue.record(self._lease, result)
        return results

    def _list_pairs(self, record: BlockRecord) -> Iterator[tuple[int, Sequence[Step]]]:
        """Yield the next pair and its steps, until the judge has its answer or a block failed."""
        steps: Sequence[Step] = record.steps
        for pair in range(1, USUAL_PAIRS + 1):
            yield pair, steps
            if record.trouble("A") or record.trouble("B"):
                return
            judged = self._judged
            assert judged is not None  # noqa: S101 - judged after each pair
            if not judged.more:
                return
            if pair >= FIRST_LOOK:
                waiting = {name.partition(".")[0] for name in judged.waiting}
                steps = [step for step in record.steps if step.workload.name in waiting]

    def _run_pair(
        self,
        executor: Executor,
        record: BlockRecord,
        pair: int,
        steps: Sequence[Step],
        jobs: Mapping[str, Jobs],
    ) -> None:
        for place, step in enumerate(steps):
            arms = ARMS if (pair + place) % 2 else (ARMS[1], ARMS[0])
            if not any(record.has(step, pair, arm) or record.trouble(arm) for arm in ARMS):
                expected = []
                for arm in arms:
                    prepared = jobs[step.name][arm]
                    job = replace(prepared.job, step=_name_block(step, pair, arm))
                    expected.append(replace(prepared, job=job))
                executor.expect(expected)
            for arm in (*arms, ARMS[0]):
                broken = record.trouble("A") or record.trouble("B")
                wanted = not broken or _is_wanted(record, step, pair, arm)
                if not wanted or record.has(step, pair, arm):
                    continue
                # What is left: blocks of the expected pairs, or of this one, and other steps.
                whole = len(ARMS) * max(self._expected, pair)
                ended = {s.name: sum(len(record.blocks(s, arm)) for arm in ARMS) for s in steps}
                left = {name: max(whole - count, 0) for name, count in ended.items()}
                self._steps.forecast.plan({**dict.fromkeys(self._alone, 1), **left})
                name = _name_block(step, pair, arm)
                doing = describe_progress(self._judged, pair, USUAL_PAIRS, step, arm)
                prepared = jobs[step.name][arm]
                result, _ = self._steps.run_once(executor, step, prepared, name, name, doing)
                position = BlockPosition(arm, pair, self._lease.attempt)
                result = replace(result, name=name, block=position)
                self._queue.record(self._lease, result)
                record.add(step, result)


def _is_wanted(record: BlockRecord, step: Step, pair: int, arm: Arm) -> bool:
    """Return whether a block is wanted after one failed.

    Each step needs a candidate. A reference in the same pair shows whose fault a candidate has.
    """
    if arm == "B":
        return not record.blocks(step, "B")
    trouble = record.trouble("B", step)
    place = trouble.result.block if trouble and trouble.result.attributable else None
    return place is not None and place.pair == pair


def _restore(
    compared: Sequence[Step], jobs: Mapping[str, Jobs], stored: Sequence[StepResult]
) -> BlockRecord:
    record = BlockRecord(compared)
    for step in compared:
        pairs: dict[int, list[StepResult]] = {}
        for one in stored:
            if one.block and (
                one.name == _name_block(step, one.block.pair, one.block.arm)
                and one.image == jobs[step.name][one.block.arm].image
                and one.origin is not None
                and one.origin.digest == step.workload.digest
            ):
                pairs.setdefault(one.block.pair, []).append(one)
        for blocks in pairs.values():
            whole = len(blocks) == len(ARMS)
            session = len({one.block.session for one in blocks if one.block}) == 1
            for one in blocks:
                failed = one.outcome != "passed" and not one.attributable
                if failed or (whole and session):
                    record.add(step, one)
    return record


def _name_block(step: Step, pair: int, arm: Arm) -> str:
    return f"{step.name}-pair{pair}-{arm}"
