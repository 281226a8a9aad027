"""Evaluate a stack on the pools of a target: one verdict from facts and matrix.

Pure, and cheap to call. `evaluate_pool` asks every rule about one pool, looks for fixes and
applies waivers; `assess` joins the results of the pools.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import chain
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.assumed_pins import assume_pins
from compatgate.core.facts import Facts
from compatgate.core.fixes import FixFinder
from compatgate.core.matrix import Matrix
from compatgate.core.package_cuda import assume_cuda
from compatgate.core.parts import Parts
from compatgate.core.performance import sha256
from compatgate.core.request import Policy, Pool, Target
from compatgate.core.rule import (
    NOT_APPLICABLE,
    OUTCOME_RANK,
    PASS,
    REFUSING,
    Basis,
    Checked,
    Finding,
    Outcome,
    Rule,
    RuleAnswer,
    Verdict,
)
from compatgate.core.rule_context import RuleContext
from compatgate.core.rules import BY_ID, RULES
from compatgate.core.rules.caveats import incomplete, some_pools, waived
from compatgate.core.rules.matrix import evidence_for
from compatgate.core.stack import Stack, complete_stack
from compatgate.core.stack_facts import list_builds, list_plugins
from compatgate.core.versions import format_parts

_encode = msgspec.json.Encoder(order="deterministic").encode
_MAX_NAMED = 5
_OUTCOMES: dict[int, Outcome] = {0: "pass", 1: "warn", 2: "unknown", 3: "fail"}


def evaluate(
    stack: Stack,
    target: Target,
    *,
    facts: Facts,
    matrix: Matrix | None = None,
    now: datetime,
    with_fixes: bool = True,
    basis: Basis = "stated",
) -> Verdict:
    """Decide whether a stack may run on a target.

    The verdict is the worst over the target's pools. The same inputs give the same verdict and id.

    Args:
        stack: the workload's stack; its CUDA is completed from a framework's version label.
        target: its pools (at least one) and policy; an empty name for a described pool.
        matrix: entries, waivers and evidence; None for a question about facts alone.
        with_fixes: compute fixes; planning, which asks thousands of times, leaves them out.
    """
    found = assess(
        stack, target, facts=facts, matrix=matrix or Matrix(), now=now, with_fixes=with_fixes
    )
    return seal(found, target.policy, stack.image, now, basis)


def assess(
    stack: Stack,
    target: Target,
    *,
    facts: Facts,
    matrix: Matrix,
    now: datetime,
    with_fixes: bool = True,
) -> Verdict:
    """Return a verdict without id, image and time; the arguments are those of `evaluate`.

    Only the waivers that an image matches count here (`Matrix.image_patterns`), and its digest
    where the policy binds evidence to the image: one assessment serves every other image that
    matches the same waivers, and `seal` completes the verdict of each.
    """
    today, seconds = now.astimezone(UTC).date().isoformat(), now.timestamp()

    def judge(one: Stack) -> list[PoolResult]:
        contexts = (
            RuleContext(one, pool, target, facts, matrix, today=today, now=seconds)
            for pool in target.pools
        )
        return [evaluate_pool(assume_pins(one), with_fixes=with_fixes) for one in contexts]

    def complete(one: Stack) -> Stack:
        return assume_cuda(complete_stack(one, facts.frameworks), facts, target.pools)

    stack = complete(stack)
    stack, judged = (
        _judge_builds(list_builds(stack, facts, target.pools), judge)
        or _judge_plugins(*list_plugins(stack, facts), complete, judge)
        or (stack, judge(stack))
    )
    there = [f for one in judged for f in one.findings] if stack.alternatives else []
    for name, other in stack.alternatives.items():
        # A waiver for the image covers what it holds; evidence of the image's digest does not.
        image = stack.image.partition("@")[0] if stack.image else None
        for one in judge(replace(complete(other), image=image)):
            named = (f if f in there else _name_stack(f, name) for f in one.findings)
            judged.append(replace(one, findings=list(named)))
    said = (finding for one in judged for finding in one.findings)
    findings = _group_findings((*said, *_report_other_pools(target)))
    outcome = _OUTCOMES[max((OUTCOME_RANK[f.outcome] for f in findings), default=0)]
    return Verdict(
        id="",
        verdict=outcome,
        allowed=is_allowed(outcome, target.policy),
        mode=target.policy.mode,
        target=target.name or None,
        findings=findings,
        checked=_list_checked_rules(judged),
        stack=stack.to_json(),
        pools=tuple(_pool_json(pool) for pool in target.pools),
        matrix_revision=matrix.revision,
        facts=facts.digest,
        overlays=facts.overlays,
        evidence=tuple(dict.fromkeys(run for one in judged for run in one.evidence)),
        entries={one.pool: one.entry for one in reversed(judged) if one.entry},
        valid_until=min((when for one in judged for when in one.until), default=None),
    )


def _judge_builds(
    builds: Sequence[Stack], judge: Callable[[Stack], list[PoolResult]]
) -> tuple[Stack, list[PoolResult]] | None:
    """Return the last of some builds and its results where all run; else None.

    The last one has the newest CUDA, which asks most of the driver.
    """
    last = None
    for stack in builds:
        pools = judge(stack)
        if any(finding.outcome in REFUSING for one in pools for finding in one.findings):
            return None
        last = stack, pools
    return last


def _judge_plugins(
    stacks: Iterable[Stack],
    all_known: bool,
    complete: Callable[[Stack], Stack],
    judge: Callable[[Stack], list[PoolResult]],
) -> tuple[Stack, list[PoolResult]] | None:
    """Return the first of some stacks that runs; of all that there are, the first if all fail."""
    denied = list[tuple[Stack, list[PoolResult]]]()
    for stack in map(complete, stacks):
        pools = judge(stack)
        outcomes = {finding.outcome for one in pools for finding in one.findings}
        if outcomes.isdisjoint(REFUSING):
            return stack, pools
        all_known = all_known and "fail" in outcomes
        denied.append((stack, pools))
    return denied[0] if denied and all_known else None


def seal(
    found: Verdict, policy: Policy, image: str | None, now: datetime, basis: Basis = "stated"
) -> Verdict:
    """Return the verdict of an assessment."""
    verdict = replace(found, image=image, basis=basis)
    return replace(verdict, id=identify(verdict, policy), decided_at=format_moment(now))


def identify(verdict: Verdict, policy: Policy) -> str:
    """Return the id of a verdict: a digest of its content, without the time, and of the policy."""
    digest = sha256(_encode((replace(verdict, id="", decided_at=""), policy)))
    return f"vd_{digest[:32]}"


def format_moment(moment: datetime) -> str:
    """Format a time as answers carry it, ``2026-11-03T09:30:00.123Z``."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def is_allowed(outcome: Outcome, policy: Policy) -> bool:
    """Return whether the policy allows an outcome; only ``enforce`` denies."""
    if policy.mode != "enforce":
        return True
    if outcome == "unknown":
        return policy.on_unknown != "fail"
    return outcome != "fail"


def _name_stack(finding: Finding, name: str) -> Finding:
    return replace(finding, message=f"{name}: {finding.message}")


def _report_other_pools(target: Target) -> tuple[Finding, ...]:
    if not target.left_out and not target.pools:  # nothing was judged, which is not a pass
        message = f"target {target.name} has no pools to run on"
        need = "at least one pool with its gpu and driver"
        return (incomplete.finding("unknown", (), "pool", None, need, message),)
    if not target.left_out:
        return ()
    asked = tuple(pool.name for pool in target.pools)
    left = ", ".join(target.left_out[:_MAX_NAMED])
    left += ", ..." if len(target.left_out) > _MAX_NAMED else ""
    message = f"the question is about some pools of {target.name}; {left} was not judged"
    return (some_pools.finding("not-checked", asked, "pool", None, None, message),)


def _group_findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings worst first; a finding that several pools share appears once."""
    said = list(findings)
    if len({finding.rule for finding in said}) < len(said):
        groups: dict[bytes, Finding] = {}
        for finding in said:
            key = _encode(replace(finding, pools=()))
            known = groups.setdefault(key, finding)
            if known is not finding:
                pools = dict.fromkeys((*known.pools, *finding.pools))  # a rule may repeat itself
                groups[key] = replace(known, pools=tuple(pools))
        said = list(groups.values())

    def order(finding: Finding) -> tuple[int, str]:
        waived = finding.outcome == "waived"
        return -(OUTCOME_RANK[finding.outcome] * 2 + waived), finding.rule

    return tuple(sorted(said, key=order))


def _list_checked_rules(judged: Iterable[PoolResult]) -> Checked:
    judged = list(judged)
    passed = dict.fromkeys(chain.from_iterable(one.passed for one in judged))
    silent = dict.fromkeys(chain.from_iterable(one.not_applicable for one in judged))
    for rule_id in {finding.rule for one in judged for finding in one.findings}:
        passed.pop(rule_id, None)
        silent.pop(rule_id, None)
    for rule_id in passed.keys() & silent.keys():
        del silent[rule_id]
    return Checked(tuple(passed), tuple(silent))


def _pool_json(pool: Pool) -> dict[str, Any]:
    body: dict[str, Any] = {
        "name": pool.name,
        "gpu": pool.gpu.sku if pool.gpu else None,
        "compute_capability": format_parts(pool.gpu.capability) if pool.gpu else None,
        "driver": pool.driver.text if pool.driver else None,
        "os": pool.os,
        "cpu": pool.cpu,
        "count": pool.count,
    }
    optional = {"platform": pool.platform, "sharing": pool.sharing, "node": pool.node}
    return body | {name: value for name, value in optional.items() if value}


class PoolResult(Struct, frozen=True):
    """The answers of the rules for one pool."""

    pool: str
    findings: list[Finding]
    passed: list[str]
    not_applicable: list[str]
    until: list[str]  # ISO times from which the answer may differ
    evidence: list[str]  # ids of the runs that the answer rests on
    entry: str | None  # the matrix entry that decided


@lru_cache(maxsize=16)
def find_applicable_rules(stated: Parts) -> tuple[Rule, ...]:
    """Return the rules that can object to a question that has these of the `OPTIONAL`."""
    return tuple(rule for rule in RULES if rule.applies_to(stated))


def evaluate_pool(context: RuleContext, *, with_fixes: bool) -> PoolResult:
    """Ask every rule about a context, and look for fixes if asked to."""
    asked = find_applicable_rules(context.optional_parts)
    answers: dict[str, RuleAnswer] = dict.fromkeys(BY_ID, NOT_APPLICABLE)
    for rule in asked:  # as `Rule.answer` does, without a call for each
        said = rule.check(context)
        answers[rule.id] = said if isinstance(said, str) else rule.weigh(said, context)
    findings: list[Finding] = []
    finder = FixFinder(context, answers)
    for rule in asked:
        answer = answers[rule.id]
        if isinstance(answer, str):
            continue
        for problem in answer:
            fixes = finder.fixes(problem, rule) if with_fixes else ()
            findings.append(
                rule.finding(
                    problem.outcome,
                    (context.pool.name,),
                    problem.component,
                    problem.have,
                    problem.need,
                    problem.message,
                    problem.source,
                    fixes,
                )
            )
    waived = [finding for f in findings for finding in _waive(f, context)]
    return PoolResult(
        context.pool.name,
        waived,
        [rule_id for rule_id, answer in answers.items() if answer == PASS],
        [rule_id for rule_id, answer in answers.items() if answer == NOT_APPLICABLE],
        context.until,
        evidence_for(context) if context.policy.canary.require else [],
        context.deciding.name if context.deciding else None,
    )


def _waive(finding: Finding, context: RuleContext) -> Sequence[Finding]:
    """Return the finding, or the waived finding with a record of the waiver."""
    if OUTCOME_RANK[finding.outcome] == 0 or BY_ID[finding.rule].not_waivable:
        return (finding,)
    for waiver in context.matrix.waivers:
        if finding.rule in waiver.rules and waiver.covers(
            context.target.name, context.stack, context.today, context.driver
        ):
            context.holds_through(waiver.expires)
            message = f"{finding.rule} {finding.name} is waived by {waiver.name} until "
            message += f"{waiver.expires} ({waiver.owner}: {waiver.reason})"
            record = waived.finding(
                "warn", finding.pools, finding.component, waiver.name, None, message
            )
            return (replace(finding, outcome="waived"), record)
    return (finding,)
