"""What developers read: one line for a denial, one for each warning."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from compatgate.core.matrix import Waiver
from compatgate.core.verdict import Finding, Verdict
from compatgate.gate.admission.questions import Question
from compatgate.gate.admission.review import one_line

_LONGEST_IMAGE = 120
_NAMED = 5
_SAID = 2


def denial(question: Question, verdict: Verdict, link: str, why_not: str) -> str:
    """Why a container may not run, what would help, and where the verdict is.

    Args:
        question: about the container.
        verdict: denies.
        link: to the verdict; empty: it is not kept.
        why_not: why no waiver exempts it.
    """
    finding = leading(verdict)
    does = "may not run" if verdict.verdict == "fail" else "cannot be decided and is stopped"
    parts = [f"{about(question)} {does} on {verdict.target}"]
    if finding:
        parts[0] += f": {_short(finding)}"
        if finding.fixes:
            parts.append(f"fix: {finding.fixes[0].message}")
        more = sorted({f.rule for f in verdict.failing} - {finding.rule})
        if more:
            parts.append(f"also {', '.join(more)}")
    if question.possible:
        parts.append(
            f"no node selector keeps it from {verdict.target}: select nodes, "
            "or annotate compatgate.dev/target"
        )
    return "; ".join([*parts, *filter(None, (why_not, link))])


def misplaced(question: Question, finding: Finding, why_not: str) -> str:
    """Say why a container may not run where it is to run, before any stack is judged.

    Args:
        question: about the container.
        finding: about its placement.
        why_not: why no waiver exempts it.
    """
    said = f"{about(question)} may not run: {_short(finding)}"
    return "; ".join(filter(None, (said, why_not)))


def placed(question: Question, finding: Finding) -> str:
    """Say what is wrong with where a container is to run, and that it is let in."""
    by = f"compatgate {question.target}" if question.target else "compatgate"
    return f"{by}: container {_names(question.containers)}: {_short(finding)}"


def unmatched(question: Question, targets: Sequence[str], why_not: str) -> str:
    """That nothing says which target a GPU workload is for."""
    names = ", ".join(sorted(targets)[:_NAMED]) + (", ..." if len(targets) > _NAMED else "")
    known = f" ({names})" if names else ""
    said = f"; {why_not}" if why_not else ""
    return (
        f"{about(question)} uses GPUs and matches no target, so nothing was checked; "
        f"annotate compatgate.dev/target{known}{said}"
    )


def warnings(question: Question, verdict: Verdict) -> list[str]:
    """What is wrong with what is let in; nothing where the verdict is a pass."""
    by = f"compatgate {verdict.target}, {verdict.verdict} ({verdict.mode}): container "
    names = _names(question.containers)
    return [f"{by}{names}: {_short(finding)}" for finding in verdict.failing[:_SAID]]


def exempted(question: Question, waiver: Waiver, verdict: Verdict | None) -> str:
    """That a waiver lets in what would be denied."""
    finding = leading(verdict) if verdict else question.finding
    what = f"denied by {finding.rule}" if finding else "without a target"
    return (
        f"compatgate: container {_names(question.containers)} is {what}, "
        f"exempt by waiver {waiver.name} until {waiver.expires} ({waiver.owner})"
    )


def joined(denials: Sequence[str]) -> str:
    """Several denials on one line: the first, and how many more there are."""
    more = f" (and {len(denials) - 1} more)" if len(denials) > 1 else ""
    return f"{denials[0]}{more}"


def leading(verdict: Verdict) -> Finding | None:
    """The finding to name: what was left open comes first, for the others rest on it."""
    left = verdict.stack.get("open", ())
    weighing = (f for f in verdict.findings if f.outcome in ("fail", "unknown"))
    found = (f for f in weighing if any(said in f.message for said in left))
    return next(found, verdict.failing[0] if verdict.failing else None)


def about(question: Question) -> str:
    """The containers of a question and their image."""
    image = one_line(question.image, _LONGEST_IMAGE)
    several = "containers" if len(question.containers) > 1 else "container"
    return f"{several} {_names(question.containers)}" + (f" ({image})" if image else "")


def _names(names: Iterable[str]) -> str:
    shown = [one_line(name, 64) for name in names]
    left = f" and {len(shown) - _NAMED} more" if len(shown) > _NAMED else ""
    return f"{', '.join(shown[:_NAMED])}{left}"


def _short(finding: Finding) -> str:
    return f"{finding.rule} {finding.message}"
