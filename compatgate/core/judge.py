"""What the rules say of one pool: their findings with fixes, and waivers applied."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.case import Case
from compatgate.core.fixes import FixFinder
from compatgate.core.matrix import Waiver
from compatgate.core.rules import BY_ID, RULES
from compatgate.core.rules.base import NOT_APPLICABLE, PASS, Answer, Problem, Rule
from compatgate.core.rules.canary import evidence_for
from compatgate.core.rules.waived import waived
from compatgate.core.target import Pool
from compatgate.core.verdict import RANK, Finding, Fix


class Judged(Struct, frozen=True):
    """What the rules said of one pool.

    Attributes:
        passed: ids of the rules that hold; ``not_applicable`` likewise.
        until: ISO times from which the answer may be another.
        evidence: ids of the runs that it rests on.
        entry: the matrix entry that decided.
    """

    pool: str
    findings: list[Finding]
    passed: list[str]
    not_applicable: list[str]
    until: list[str]
    evidence: list[str]
    entry: str | None


def judge(case: Case, *, with_fixes: bool) -> Judged:
    """Ask every rule about a case, and look for fixes where they are wanted."""
    answers: dict[str, Answer] = {rule.id: rule.answer(case) for rule in RULES}
    findings: list[Finding] = []
    finder = FixFinder(case, answers)
    for rule in RULES:
        answer = answers[rule.id]
        if isinstance(answer, str):
            continue
        for problem in answer:
            fixes = finder.fixes(problem, rule) if with_fixes else ()
            findings.append(_finding(rule, problem, case.pool, fixes))
    waived = [finding for f in findings for finding in _waive(f, case)]
    return Judged(
        case.pool.name,
        waived,
        [rule_id for rule_id, answer in answers.items() if answer == PASS],
        [rule_id for rule_id, answer in answers.items() if answer == NOT_APPLICABLE],
        case.until,
        evidence_for(case) if case.policy.canary.require else [],
        case.deciding.name if case.deciding else None,
    )


def _finding(rule: Rule, problem: Problem, pool: Pool, fixes: tuple[Fix, ...]) -> Finding:
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
    if RANK[finding.outcome] == 0 or BY_ID[finding.rule].not_waivable:
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
        waived.id, waived.name, "warn", finding.component, waiver.name, None, message, finding.pools
    )
