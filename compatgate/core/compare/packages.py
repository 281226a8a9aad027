"""Ask what ``packages: enforce`` would stop on the targets that audit packages.

The worlds differ by the policy alone; subjects are the entries in use and the stacks that were
asked about.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from compatgate.core.compare.comparison import compare, list_entries_in_use
from compatgate.core.compare.differences import Difference, Subject
from compatgate.core.compare.worlds import State, World
from compatgate.core.facts import Facts
from compatgate.core.facts.nvidia import Pair
from compatgate.core.request import Mode, Target
from compatgate.core.rules.package_code import advise_record, meant_package
from compatgate.core.rules.packages import package_open
from compatgate.core.stack import parse_stack
from compatgate.core.versions import format_parts

_SHOWN_VERDICTS = 3


class OpenPackage(Struct, frozen=True, forbid_unknown_fields=True):
    """A package without a record, which the target allows with a warning.

    `decisions` counts decisions on stacks with the package; `enforce` would stop `stopped` of them.
    """

    package: str
    version: str
    rules: Annotated[list[str], Meta(description="rules that cannot decide on the package")]
    message: str
    decisions: int
    stopped: int
    first: datetime | None
    last: datetime | None
    verdicts: Annotated[list[str], Meta(description="sample verdicts")]
    entries: Annotated[list[str], Meta(description="matrix entries with the package")]
    todo: Annotated[list[str], Meta(description="ways to resolve the package; one is enough")]


class PackagesTarget(Struct, frozen=True, forbid_unknown_fields=True):
    """A target that audits packages: what was checked, and what `enforce` would stop."""

    target: str
    mode: Mode
    decisions: int
    stacks: Annotated[int, Meta(description="number of different stacks in the decisions")]
    stopped: int
    entries: int
    stopped_entries: list[str]
    packages: Annotated[list[OpenPackage], Meta(description="packages, most denials first")]
    open: Annotated[list[str], Meta(description="items that could not be checked, with the reason")]


class PackagesReport(Struct, frozen=True, forbid_unknown_fields=True):
    """The packages report; `complete`: it covers every decision since then, else the newest."""

    since: datetime
    decisions: int
    complete: bool
    targets: list[PackagesTarget]
    matrix_revision: int
    facts: str


def report_packages(
    world: World, target: Target, questions: Sequence[Subject], now: datetime
) -> PackagesTarget:
    """Return what enforcing would stop on a target that audits packages.

    The questions are recent ones about the target, each once.
    """
    before, after = (
        State(world.facts, world.matrix, {target.name: replace(target, policy=policy)})
        for policy in (replace(target.policy, packages=mode) for mode in ("audit", "enforce"))
    )
    entries = list_entries_in_use(world.matrix, target.name)
    compared = compare(before, after, [*questions, *entries], now, with_fixes=False)
    open_: list[str] = []
    for one in compared:
        if one.open:
            name = f"entry {one.name}" if one.kind == "entry" else one.name
            open_.append(f"{name}: {'; '.join(one.open)}")
        elif one.cases[0].before is None and one.cases[0].reason:
            open_.append(f"{one.name}: {one.cases[0].reason.message}")
    checked = [one for one in compared if one.cases and one.cases[0].before is not None]
    asked = [one for one in checked if one.kind != "entry"]
    used = [one for one in checked if one.kind == "entry"]
    return PackagesTarget(
        target.name,
        target.policy.mode,
        sum(one.decisions for one in asked),
        len(asked),
        sum(one.decisions for one in asked if _is_stopped(one)),
        len(used),
        [one.name for one in used if _is_stopped(one)],
        _list_packages(world.facts, target, checked),
        list(dict.fromkeys(open_)),
    )


def _is_stopped(subject: Subject) -> bool:
    return any(case.allowed == (True, False) for case in subject.cases)


def _list_packages(facts: Facts, target: Target, checked: Iterable[Subject]) -> list[OpenPackage]:
    """Return the packages that enforcing makes unknown; those that stop most come first."""
    packages: dict[tuple[str, str], OpenPackage] = {}
    for one in checked:
        for case in one.cases:
            for key, rules, message in _find_open(case):
                known = packages.get(key) or OpenPackage(
                    *key, [], message, 0, 0, None, None, [], [], []
                )
                known = replace(known, rules=list(dict.fromkeys((*known.rules, *rules))))
                packages[key] = _count(known, one, stopped=case.allowed == (True, False))
    code = [pool.gpu.capability for pool in target.pools if pool.gpu]
    described = [
        replace(
            one,
            verdicts=one.verdicts[:_SHOWN_VERDICTS],
            todo=list_remedies(facts, one.package, one.version, one.rules, code),
        )
        for one in packages.values()
    ]
    return sorted(
        described, key=lambda one: (-one.stopped, -one.decisions, one.package, one.version)
    )


def _find_open(case: Difference) -> Iterator[tuple[tuple[str, str], list[str], str]]:
    """Yield package and version, the rules that cannot decide on them, and the first message."""
    unknown = [finding for finding in case.lost if finding.outcome == "unknown"]
    stack = parse_stack(case.stack) if unknown else None
    for component in dict.fromkeys(finding.component for finding in unknown):
        of_package = [finding for finding in unknown if finding.component == component]
        version = stack.get(component) if stack else None
        rules = [finding.rule for finding in of_package]
        yield (component, version.text if version else ""), rules, of_package[0].message


def _count(known: OpenPackage, subject: Subject, *, stopped: bool) -> OpenPackage:
    if subject.kind == "entry":
        return replace(known, entries=list(dict.fromkeys((*known.entries, subject.name))))
    firsts = [at for at in (known.first, subject.first_asked) if at]
    lasts = [at for at in (known.last, subject.last_asked) if at]
    return replace(
        known,
        decisions=known.decisions + subject.decisions,
        stopped=known.stopped + subject.decisions * stopped,
        first=min(firsts, default=None),
        last=max(lasts, default=None),
        verdicts=list(dict.fromkeys((*known.verdicts, *subject.verdicts))),
    )


def list_remedies(
    facts: Facts, name: str, version: str, rules: Sequence[str], capabilities: Iterable[Pair]
) -> list[str]:
    """List the ways to settle a package that rules cannot decide on; one is enough."""
    recorded = [one.text for one in facts.recorded_versions(name) if one.text != version]
    todo = [f"use {name} {recorded[-1]}, the newest release with a record"] if recorded else []
    if package_open.id in rules:
        code = "+".join(
            f"sm_{format_parts(pair).replace('.', '')}" for pair in sorted(set(capabilities))
        )
        near = meant_package(name, facts)
        todo.append(f"did you mean {near}?" if near else f"add {advise_record(name, version)}")
        if code:
            todo.append(f"state the GPU code of the build: {name}={version}[{code}]")
    waived = f'rules: [{", ".join(rules)}], match: {{components: {{{name}: "=={version}"}}}}'
    return [*todo, f"waive it: {waived}"]
