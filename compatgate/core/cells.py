"""Answer the cells of a table of stacks and places, by the evaluation that answers the gate.

A row is one stack: that of a question, of a published build of a framework, or the newest stack
that an entry allows. A column is one or more targets, each with all or some of its pools. The
state of a cell says what stands between the stack and a pass, and never more than the verdict.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Literal, get_args

from msgspec import Struct

from compatgate.core.components import is_framework, label_of
from compatgate.core.entry_stacks import represent
from compatgate.core.evaluate import assess
from compatgate.core.facts import Facts
from compatgate.core.facts.frameworks import Build, Release
from compatgate.core.matrix import Entry, Matrix
from compatgate.core.request import Target
from compatgate.core.rule import REFUSING, Finding, Outcome, Verdict
from compatgate.core.stack import Stack, parse_stack, stack_of
from compatgate.core.versions import Version, format_parts
from compatgate.errors import BadInput

CellState = Literal["works", "note", "waived", "unblessed", "unknown", "fails"]
"""From best to worst. ``works``: the verdict is pass; ``note``: warn; ``waived``: a waiver lets
through what would stop the stack; ``unblessed``: nothing but an entry or a canary run is missing;
``unknown``: something is not known; ``fails``: a rule fails, an entry is revoked or a canary run
failed."""
STATE_RANK: dict[CellState, int] = {state: n for n, state in enumerate(get_args(CellState))}
TO_BE_DONE = frozenset(("CG801", "CG811", "CG812"))
"""Rules that object until somebody blesses the stack or runs its canaries."""


class StackRow(Struct, frozen=True):
    """A row: one stack, and what it stands for."""

    key: str  # unique among the rows
    label: str
    note: str
    stack: Stack | None  # None: no stack can be made, for the reasons in ``open``
    group: str = ""  # rows of one group follow each other, ``CUDA 12.8``
    entry: Entry | None = None
    open: tuple[str, ...] = ()


class CellAnswer(Struct, frozen=True):
    """The answer of a cell."""

    state: CellState
    verdict: Outcome | None = None  # the gate's; None: the question cannot be asked
    rule: str = ""  # id of the rule that decides; empty where every rule holds
    why: str = ""
    # ISO time from which the answer may differ; None: as long as the matrix
    valid_until: str | None = None
    mixed: bool = False  # the places of the column differ; this is the worst of them
    target: str = ""  # the target that decides

    @property
    def runs(self) -> bool:
        """Return whether nothing stands between the stack and the places."""
        return STATE_RANK[self.state] <= STATE_RANK["waived"]


def classify_verdict(verdict: Verdict) -> CellState:
    """Return the state that a verdict makes of a cell."""
    if verdict.verdict == "pass":
        return "works"
    if verdict.verdict == "warn":
        return "waived" if any(f.outcome == "waived" for f in verdict.findings) else "note"
    objecting = _list_objections(verdict)
    if objecting and all(finding.rule in TO_BE_DONE for finding in objecting):
        return "unblessed"
    # What is owed by people does not hide what the facts leave open.
    if any(f.outcome == "fail" and f.rule not in TO_BE_DONE for f in objecting):
        return "fails"
    return "unknown"


def answer_cell(
    stack: Stack, target: Target, *, facts: Facts, matrix: Matrix, now: datetime
) -> CellAnswer:
    """Return the answer for a stack on a target."""
    verdict = assess(stack, target, facts=facts, matrix=matrix, now=now, with_fixes=False)
    state = classify_verdict(verdict)
    decisive = _find_decisive(verdict, state)
    return CellAnswer(
        state,
        verdict.verdict,
        decisive.rule if decisive else "",
        decisive.message if decisive else "",
        verdict.valid_until,
        target=target.name,
    )


def join_answers(answers: list[CellAnswer]) -> CellAnswer:
    """Return the worst of several answers; there is at least one."""
    worst = max(answers, key=lambda one: STATE_RANK[one.state])
    differ = any(one.state != worst.state for one in answers)
    until = min((one.valid_until for one in answers if one.valid_until), default=None)
    return CellAnswer(
        worst.state, worst.verdict, worst.rule, worst.why, until, differ, worst.target
    )


def _list_objections(verdict: Verdict) -> list[Finding]:
    return [f for f in verdict.findings if f.outcome in REFUSING]


def _find_decisive(verdict: Verdict, state: CellState) -> Finding | None:
    if state == "works":
        return None
    if state in ("note", "waived"):
        warnings = [f for f in verdict.findings if f.outcome == "warn"]
        telling = "CG804" if state == "note" else "CG821"
        return next((f for f in warnings if f.rule == telling), warnings[0])
    objecting = _list_objections(verdict)
    if state == "unblessed":
        return objecting[0]
    outcome = "fail" if state == "fails" else "unknown"
    return next((f for f in objecting if f.outcome == outcome and f.rule not in TO_BE_DONE), None)


def make_entry_row(entry: Entry, facts: Facts) -> StackRow:
    """Return an entry as a row: the newest stack that it allows, where there is one."""
    found = represent(entry, facts)
    stack = found.stacks[0] if found.stacks else None
    note = format_versions(stack) if stack else "; ".join(found.open)
    cuda = stack.get("cuda") if stack else None
    group = f"CUDA {format_parts(cuda.major_minor)}" if cuda else "CUDA not named"
    return StackRow(entry.name, entry.name, note, stack, group, entry, found.open)


def list_framework_rows(entries: Iterable[Entry], facts: Facts) -> list[StackRow]:
    """Return a row for each series of a framework and CUDA that entries name, newest first.

    Its stack is the newest release that they allow, without what its wheel pins: what people ask
    ("does PyTorch 2.8 run there?"). Without entries, each framework's newest release is a row.
    """
    stacks = [stack for entry in entries for stack in represent(entry, facts).stacks[:1]]
    found: dict[str, StackRow] = {}
    if not stacks:
        tables = (facts.framework(name) for name in sorted(facts.framework_names))
        listed = (one for one in tables if one and is_framework(one.name) and one.releases)
        stacks = [stack_of({t.name: max(one.version for one in t.releases)}) for t in listed]
    for stack in stacks:
        names = [name for name in stack.components if is_framework(name)]
        if not names:
            continue
        stated = {name: v for name, v in stack.components.items() if name in ("cuda", *names)}
        main = next((name for name in names if name != "torch"), "torch")  # vLLM is built on torch
        cuda = stated.get("cuda")
        label = f"{label_of(main)} {_series(stated[main].text)}"
        key = f"{main} {_series(stated[main].text)}"
        key += f" cu{''.join(map(str, cuda.major_minor))}" if cuda else ""
        known = found.get(key)
        if known is None or known.stack is None or known.stack.components[main] < stated[main]:
            short = stack_of(stated)
            found[key] = StackRow(key, label, format_versions(short), short, main)

    def rank(row: StackRow) -> tuple[bool, str, Version, str]:
        assert row.stack is not None  # noqa: S101 - made with one
        return row.group == "torch", row.group, row.stack.components[row.group], row.key

    return sorted(found.values(), key=rank, reverse=True)


def list_release_rows(facts: Facts, name: str) -> Iterator[StackRow]:
    """Yield the published builds of a framework, newest release first."""
    table = facts.framework(name)
    if table is None:
        known = ", ".join(sorted(facts.framework_names))
        raise BadInput("has no list of releases", field="rows", value=name, hint=f"one of {known}")
    for release in sorted(table.releases, key=lambda one: one.version, reverse=True):
        labels = [build for build in release.builds if build.label and not build.channel]
        for build in sorted(labels, key=lambda one: one.cuda or (0, 0), reverse=True):
            if row := _make_build_row(name, release, build):
                yield row
        if not labels:
            stack = stack_of({name: release.version})
            text = release.version.text
            yield StackRow(text, text, "the package index's own wheel", stack, _series(text))


def _make_build_row(name: str, release: Release, build: Build) -> StackRow | None:
    """Return a build as a row; None: its label is no part of a version, as those of channels."""
    text = f"{release.version.text}+{build.label}"
    try:
        stack = parse_stack({name: text})
    except BadInput:
        return None
    note = build.kind + (", the default" if build.default else "")
    return StackRow(text, text, note, stack, _series(text))


def _series(text: str) -> str:
    return ".".join(text.split("+")[0].split(".")[:2])


def format_versions(stack: Stack) -> str:
    """Return the components of a stack as text, frameworks first: ``torch 2.4.1 · cuda 12.4``."""
    parts = sorted(stack.components.items(), key=lambda one: not is_framework(one[0]))
    return " · ".join(f"{name} {version.text}" for name, version in parts)
