"""Report what ``packages: enforce`` would stop on the targets that audit packages.

The report evaluates recently asked stacks, and stacks that represent entries, on the current target
with today's facts, under both policies. This module does no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.entry_stacks import StackSamples
from compatgate.core.evaluate import evaluate
from compatgate.core.facts import Facts
from compatgate.core.facts.nvidia import Pair
from compatgate.core.request import PackagesMode, Target
from compatgate.core.rule import Finding, Verdict
from compatgate.core.rules.package_code import advise_record, meant_package
from compatgate.core.rules.packages import package_open
from compatgate.core.stack import Stack, parse_stack
from compatgate.core.versions import format_parts
from compatgate.core.whatif import STATUSES_IN_USE
from compatgate.documents.sources import suggest_name
from compatgate.errors import BadInput, NotFound
from compatgate.service.gate.decision_counts import AskedStack, AskedStacks
from compatgate.service.gate.snapshot import Snapshot
from compatgate.service.matrix.schemas import (
    OpenPackageBody,
    PackagesReportBody,
    PackagesTargetBody,
)

MAX_STACKS = 1000
"""Most stacks that a report evaluates."""
_SHOWN_VERDICTS = 3
_encode = msgspec.json.Encoder(order="deterministic").encode


def list_audited_targets(snapshot: Snapshot, name: str | None = None) -> tuple[str, ...]:
    """Return the targets that audit packages, by name.

    Args:
        snapshot: the matrix.
        name: the only target to return.

    Raises:
        NotFound: the target does not exist.
    """
    if name is not None and name not in snapshot.documents:
        hint = suggest_name(name, snapshot.documents)
        raise NotFound(f"target {name!r} does not exist", field="target", value=name, hint=hint)
    return tuple(
        sorted(
            target
            for target, document in snapshot.documents.items()
            if document.spec.policy.packages == "audit" and name in (None, target)
        )
    )


def make_packages_report(
    snapshot: Snapshot, targets: Sequence[str], asked: AskedStacks, since: datetime, now: datetime
) -> PackagesReportBody:
    """Report what ``packages: enforce`` would stop.

    Args:
        snapshot: the matrix, facts and evidence.
        targets: names of targets that audit packages.
        asked: recent verdicts on these targets.
        since: time of the first decision.
        now: for ends of life, waivers and the age of evidence.
    """
    samples, left = StackSamples(snapshot.facts, snapshot.matrix), _StackBudget(MAX_STACKS)
    found = [_report_target(snapshot, name, asked.found, samples, left, now) for name in targets]
    return PackagesReportBody(
        since,
        asked.decisions,
        asked.complete and not left.exceeded,
        found,
        snapshot.revision,
        snapshot.facts.digest,
    )


class _StackBudget:
    """The number of stacks that the report may still evaluate."""

    def __init__(self, stacks: int) -> None:
        self._left = stacks
        self.exceeded = False

    def spend(self) -> bool:
        """Count one stack, and tell whether the report may evaluate it."""
        self.exceeded = self.exceeded or self._left <= 0
        self._left -= 1
        return not self.exceeded


def _report_target(
    snapshot: Snapshot,
    name: str,
    asked: Iterable[AskedStack],
    samples: StackSamples,
    left: _StackBudget,
    now: datetime,
) -> PackagesTargetBody:
    target = snapshot.targets.get(name)
    if target is None:
        why = f"the target cannot be used: {snapshot.unusable.get(name, 'no pools')}"
        mode = snapshot.documents[name].spec.policy.mode
        return PackagesTargetBody(name, mode, 0, 0, 0, 0, [], [], [why])
    tally = _TargetCounts(target, snapshot, now)
    for group in _group_by_stack(one for one in asked if one.target == name):
        if not left.spend():
            break
        tally.add_decisions(group)
    tally.add_entries(samples)
    return tally.body()


def _group_by_stack(asked: Iterable[AskedStack]) -> list[list[AskedStack]]:
    """Group verdicts by stack, image and pools, without what-if questions."""
    groups: dict[bytes, list[AskedStack]] = {}
    for one in asked:
        if one.body.get("basis") != "what-if":
            key = _encode((one.body.get("stack"), one.body.get("image"), _pools_of(one)))
            groups.setdefault(key, []).append(one)
    return list(groups.values())


def _pools_of(asked: AskedStack) -> list[str]:
    return [pool.get("name", "") for pool in asked.body.get("pools", ())]


class _PackageCounts(Struct):
    """The counts of an open package."""

    message: str
    rules: dict[str, None] = {}
    decisions: int = 0
    stopped: int = 0
    first: datetime | None = None
    last: datetime | None = None
    verdicts: dict[str, None] = {}
    entries: dict[str, None] = {}

    def extend(self, first: datetime, last: datetime) -> None:
        """Extend the period of the decisions about the package."""
        self.first = min(first, self.first or first)
        self.last = max(last, self.last or last)


class _TargetCounts:
    """The counts of one target."""

    def __init__(self, target: Target, snapshot: Snapshot, now: datetime) -> None:
        self._target, self._snapshot, self._now = target, snapshot, now
        self._packages: dict[tuple[str, str], _PackageCounts] = {}
        self._open: dict[str, None] = {}
        self._decisions = self._stacks = self._stopped = self._entries = 0
        self._stopped_entries: list[str] = []

    def add_decisions(self, group: Sequence[AskedStack]) -> None:
        """Count decisions about one stack."""
        newest = group[0]
        count = sum(one.count for one in group)
        try:
            stack = parse_stack(newest.body.get("stack") or {}, image=newest.body.get("image"))
        except BadInput as error:
            self._open[f"{newest.verdict_id} can no longer be read: {error.detail}"] = None
            return
        self._decisions += count
        self._stacks += 1
        findings, stops = self._compare(stack, _pools_of(newest))
        self._stopped += count * stops
        for known in self._known(findings, stack):
            known.decisions += count
            known.stopped += count * stops
            known.extend(min(one.first for one in group), max(one.last for one in group))
            known.verdicts |= {one.verdict_id: None for one in group}

    def add_entries(self, samples: StackSamples) -> None:
        """Count the entries in use on the target."""
        for entry in self._snapshot.matrix.entries.of(self._target.name):
            if entry.status not in STATUSES_IN_USE:
                continue
            pools = [pool for pool in self._target.pools if entry.is_for(pool)]
            stacks, why = samples.of(entry, pools)
            if why:
                self._open[f"entry {entry.name}: {'; '.join(why)}"] = None
                continue
            self._entries += bool(pools)
            stopped = False
            for pool, of_pool in zip(pools, stacks, strict=True):
                for stack in of_pool:
                    findings, stops = self._compare(stack, [pool.name])
                    stopped = stopped or stops
                    for known in self._known(findings, stack):
                        known.entries[entry.name] = None
            if stopped:
                self._stopped_entries.append(entry.name)

    def _compare(self, stack: Stack, pools: Iterable[str]) -> tuple[list[Finding], bool]:
        """Return the warnings that enforcing makes unknown, and whether it stops the stack."""
        enforced = self._evaluate(stack, pools, "enforce")
        unknown = [finding for finding in enforced.findings if finding.outcome == "unknown"]
        if not unknown:
            return [], False
        audited = self._evaluate(stack, pools, "audit")
        warned = {(f.rule, f.component) for f in audited.findings if f.outcome == "warn"}
        findings = [finding for finding in unknown if (finding.rule, finding.component) in warned]
        return findings, audited.allowed and not enforced.allowed

    def _evaluate(self, stack: Stack, pools: Iterable[str], packages: PackagesMode) -> Verdict:
        names = frozenset(pools)
        policy = replace(self._target.policy, packages=packages)
        asked = tuple(pool for pool in self._target.pools if pool.name in names)
        where = replace(self._target, pools=asked or self._target.pools, policy=policy)
        snapshot = self._snapshot
        return evaluate(
            stack,
            where,
            facts=snapshot.facts,
            matrix=snapshot.matrix,
            now=self._now,
            with_fixes=False,
        )

    def _known(self, findings: Iterable[Finding], stack: Stack) -> list[_PackageCounts]:
        """Return the counts of the findings' packages, each package once."""
        found: dict[tuple[str, str], _PackageCounts] = {}
        for finding in findings:
            version = stack.get(finding.component)
            key = (finding.component, version.text if version else "")
            known = self._packages.setdefault(key, _PackageCounts(finding.message))
            known.rules[finding.rule] = None
            found[key] = known
        return list(found.values())

    def body(self) -> PackagesTargetBody:
        """Return the counts; packages that stop most decisions come first."""
        packages = [self._package(*key, known) for key, known in self._packages.items()]
        packages.sort(key=lambda one: (-one.stopped, -one.decisions, one.package, one.version))
        return PackagesTargetBody(
            self._target.name,
            self._target.policy.mode,
            self._decisions,
            self._stacks,
            self._stopped,
            self._entries,
            self._stopped_entries,
            packages,
            list(self._open),
        )

    def _package(self, name: str, version: str, known: _PackageCounts) -> OpenPackageBody:
        code = [pool.gpu.capability for pool in self._target.pools if pool.gpu]
        return OpenPackageBody(
            name,
            version,
            list(known.rules),
            known.message,
            known.decisions,
            known.stopped,
            known.first,
            known.last,
            list(known.verdicts)[:_SHOWN_VERDICTS],
            list(known.entries),
            list_remedies(self._snapshot.facts, name, version, list(known.rules), code),
        )


def list_remedies(
    facts: Facts, name: str, version: str, rules: Sequence[str], capabilities: Iterable[Pair]
) -> list[str]:
    """List the ways to settle an open package; one is enough.

    Args:
        facts: the catalog.
        name: of the package.
        version: of the package, as the stack states it.
        rules: that cannot decide on the package.
        capabilities: compute capabilities of the target's GPUs.
    """
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
