"""One verdict from a stack, a target, the facts and the matrix. Pure, and cheap to call."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from compatgate.core.case import Case
from compatgate.core.facts import Facts
from compatgate.core.fixes import FixFinder
from compatgate.core.matrix import Matrix, Waiver
from compatgate.core.rules import RULES
from compatgate.core.rules.base import NOT_APPLICABLE, PASS, Answer, Problem, Rule
from compatgate.core.rules.canary import evidence_for
from compatgate.core.rules.matrix import deciding_entry
from compatgate.core.stack import Stack, complete
from compatgate.core.target import Policy, Pool, Target
from compatgate.core.verdict import RANK, Checked, Finding, Outcome, Verdict
from compatgate.core.versions import show

_encode = msgspec.json.Encoder(order="deterministic").encode
_OUTCOMES: dict[int, Outcome] = {0: "pass", 1: "warn", 2: "unknown", 3: "fail"}


def evaluate(
    stack: Stack,
    target: Target,
    *,
    facts: Facts,
    matrix: Matrix | None = None,
    now: datetime,
    with_fixes: bool = True,
) -> Verdict:
    """May this stack run on this target?

    The verdict is the worst over the target's pools. The same inputs give the same verdict and id.

    Args:
        stack: what is to run; its CUDA is completed from a framework's version label.
        target: its pools (at least one) and policy; an empty name for a described pool.
        facts: the catalog.
        matrix: entries, waivers and evidence; none for a question about facts alone.
        now: for ends of life, waivers and the age of evidence.
        with_fixes: compute fixes; planning, which asks thousands of times, leaves them out.
    """
    matrix = matrix or Matrix()
    moment = now.astimezone(UTC)
    stack = complete(stack)
    judged = [
        _judge(
            Case(
                stack,
                pool,
                target,
                facts,
                matrix,
                today=moment.date().isoformat(),
                now=moment.timestamp(),
            ),
            with_fixes=with_fixes,
        )
        for pool in target.pools
    ]
    findings = _grouped(finding for one in judged for finding in one.findings) or _no_pool(target)
    outcome = _OUTCOMES[max((RANK[f.outcome] for f in findings), default=0)]
    return _sealed(
        Verdict(
            id="",
            verdict=outcome,
            allowed=is_allowed(outcome, target.policy),
            mode=target.policy.mode,
            target=target.name or None,
            findings=findings,
            checked=_checked(judged),
            stack=stack.to_json(),
            pools=tuple(_pool_json(pool) for pool in target.pools),
            matrix_revision=matrix.revision,
            facts=facts.digest,
            overlays=facts.overlays,
            evidence=tuple(dict.fromkeys(run for one in judged for run in one.evidence)),
            entries={one.pool: one.entry for one in judged if one.entry},
            image=stack.image,
            valid_until=min((when for one in judged for when in one.until), default=None),
        ),
        target.policy,
        moment,
    )


def is_allowed(outcome: Outcome, policy: Policy) -> bool:
    """What the policy makes of a verdict; only ``enforce`` denies."""
    if policy.mode != "enforce":
        return True
    if outcome == "unknown":
        return policy.on_unknown != "fail"
    return outcome != "fail"


class _Judged(msgspec.Struct, frozen=True):
    """What the rules said of one pool."""

    pool: str
    findings: list[Finding]
    passed: list[str]
    not_applicable: list[str]
    until: list[str]
    evidence: list[str]
    entry: str | None


def _judge(case: Case, *, with_fixes: bool) -> _Judged:
    answers: dict[str, Answer] = {rule.id: rule.check(case) for rule in RULES}
    findings: list[Finding] = []
    finder = FixFinder(case, answers, RULES)
    for rule in RULES:
        answer = answers[rule.id]
        if isinstance(answer, str):
            continue
        for problem in answer:
            fixes = finder.fixes(problem, rule) if with_fixes else ()
            findings.append(_finding(rule, problem, case.pool, fixes))
    waived = [finding for f in findings for finding in _waive(f, case)]
    return _Judged(
        case.pool.name,
        waived,
        [rule_id for rule_id, answer in answers.items() if answer == PASS],
        [rule_id for rule_id, answer in answers.items() if answer == NOT_APPLICABLE],
        case.until,
        evidence_for(case) if case.policy.canary.require else [],
        deciding.name if (deciding := deciding_entry(case)) else None,
    )


def _finding(rule: Rule, problem: Problem, pool: Pool, fixes: Any) -> Finding:
    return Finding(
        rule.id,
        rule.name,
        problem.outcome,
        problem.component,
        problem.have,
        problem.need,
        problem.message,
        (pool.name,),
        problem.source,
        fixes,
    )


def _waive(finding: Finding, case: Case) -> Sequence[Finding]:
    """The finding, or the finding waived with the record of the waiver."""
    if RANK[finding.outcome] == 0 or finding.rule == "CG901":
        return (finding,)
    for waiver in case.matrix.waivers:
        if finding.rule in waiver.rules and waiver.covers(
            case.target.name, case.stack, case.today, case.driver
        ):
            case.holds_through(waiver.expires)
            return (replace(finding, outcome="waived"), _record(finding, waiver))
    return (finding,)


def _record(finding: Finding, waiver: Waiver) -> Finding:
    message = (
        f"{finding.rule} {finding.name} is waived by {waiver.name} until {waiver.expires} "
        f"({waiver.owner}: {waiver.reason})"
    )
    return Finding(
        "CG821", "waived", "warn", finding.component, waiver.name, None, message, finding.pools
    )


def _no_pool(target: Target) -> tuple[Finding, ...]:
    """Nothing was judged: that is not a pass."""
    if target.pools:
        return ()
    message = f"target {target.name} has no pools: there is nowhere to run"
    need = "at least one pool with its gpu and driver"
    return (Finding("CG901", "incomplete", "unknown", "pool", None, need, message),)


def _grouped(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings worst first; one that several pools share is said once."""
    groups: dict[bytes, Finding] = {}
    for finding in findings:
        key = _encode(replace(finding, pools=()))
        known = groups.get(key)
        groups[key] = replace(known, pools=(*known.pools, *finding.pools)) if known else finding
    return tuple(sorted(groups.values(), key=lambda f: (-_order(f), f.rule)))


def _order(finding: Finding) -> int:
    return RANK[finding.outcome] * 2 + (finding.outcome == "waived")


def _checked(judged: Iterable[_Judged]) -> Checked:
    """A rule passed when it passed on a pool and no pool objects; likewise not applicable."""
    judged = list(judged)
    objecting = {f.rule for one in judged for f in one.findings}
    passed = dict.fromkeys(r for one in judged for r in one.passed if r not in objecting)
    silent = dict.fromkeys(
        r for one in judged for r in one.not_applicable if r not in objecting and r not in passed
    )
    return Checked(tuple(passed), tuple(silent))


def _pool_json(pool: Pool) -> dict[str, Any]:
    return {
        "name": pool.name,
        "gpu": pool.gpu.sku if pool.gpu else None,
        "compute_capability": show(pool.gpu.capability) if pool.gpu else None,
        "driver": pool.driver.text if pool.driver else None,
        "os": pool.os,
        "cpu": pool.cpu,
        "count": pool.count,
    }


def _sealed(verdict: Verdict, policy: Policy, moment: datetime) -> Verdict:
    """The verdict with its id: a digest of what it rests on and says, not of the time."""
    digest = hashlib.sha256(_encode((verdict, policy))).hexdigest()
    return replace(
        verdict,
        id=f"vd_{digest[:32]}",
        decided_at=moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    )
