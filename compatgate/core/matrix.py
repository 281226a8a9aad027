"""Hold the matrix as the rules see it: targets and policies, entries, waivers and evidence.

A target has pools of one GPU and driver each, and the policy that decides what is enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Literal

from msgspec import Struct, field

from compatgate.core.constraints import Constraint
from compatgate.core.facts.nvidia import Gpu
from compatgate.core.stack import Stack
from compatgate.core.versions import Version, same_release

Os = Literal["linux", "windows", "wsl"]
DriverOs = Literal["linux", "windows"]
"""The system whose driver numbers a pool has: WSL has those of Windows."""
Cpu = Literal["x86_64", "aarch64"]
Mode = Literal["enforce", "warn", "audit"]
OnUnknown = Literal["fail", "warn", "allow"]
Promote = Literal["approval", "automatic"]
PackagesMode = Literal["enforce", "audit"]
EntriesMode = Literal["lenient", "strict"]
OnFailure = Literal["warn", "revoke"]


class Pool(Struct, frozen=True):
    """Nodes of one GPU SKU with one driver.

    Attributes:
        gpu: resolved SKU; None only where a question leaves it open (the verdict says so).
        driver: None only where a question leaves it open.
        os: ``wsl`` has the driver numbers of Windows.
        count: nodes.
    """

    name: str
    gpu: Gpu | None
    driver: Version | None
    os: Os = "linux"
    cpu: Cpu = "x86_64"
    count: int = 1

    @property
    def driver_os(self) -> DriverOs:
        """Return the system whose driver numbers this pool has."""
        return "linux" if self.os == "linux" else "windows"


class CanaryPolicy(Struct, frozen=True):
    """The evidence that a target requires.

    Attributes:
        max_age_s: seconds for which a passed run counts.
        suites: suites that must have passed.
        accept_development: runs outside containers count as well.
        soak: further suites that must have passed before an entry is blessed.
        promote: who blesses a candidate whose suites have passed: a person, or the gate.
        on_failure: effect of a failing re-run on a blessed entry, in addition to the warning.
    """

    require: bool = False
    max_age_s: int = 30 * 86400
    suites: tuple[str, ...] = ("smoke",)
    accept_development: bool = False
    soak: tuple[str, ...] = ()
    promote: Promote = "approval"
    on_failure: OnFailure = "warn"


class Policy(Struct, frozen=True):
    """The requirements of a target, and the effect of a verdict.

    Attributes:
        mode: ``enforce`` denies what fails; ``warn`` and ``audit`` allow it and report it.
        require_entry: a matrix entry must match.
        on_unknown: effect of an unknown verdict; ``fail`` stops (exit status 3).
        packages: outcome of a package without a record: unknown, or under ``audit`` a warning.
        entries: ``lenient`` lets an entry bless a stack with GPU packages that it does not name;
            ``strict`` does not.
    """

    mode: Mode = "enforce"
    require_entry: bool = False
    canary: CanaryPolicy = field(default_factory=CanaryPolicy)
    on_unknown: OnUnknown = "fail"
    packages: PackagesMode = "enforce"
    entries: EntriesMode = "lenient"


class Target(Struct, frozen=True):
    """A target as the rules see it; its pools are resolved.

    Attributes:
        left_out: names of its other pools, where a question is about some pools only.
    """

    name: str
    pools: tuple[Pool, ...]
    policy: Policy = field(default_factory=Policy)
    left_out: tuple[str, ...] = ()


DriverState = Literal["blessed", "not-blessed", "unknown"]
"""State of a node's driver: a blessed or deprecated entry of its targets allows it, or not."""
DriftKind = Literal["driver", "gpu"]
"""The property in which a node differs from its target's declaration."""


Status = Literal["candidate", "blessed", "deprecated", "revoked"]
ANY_TARGET = "*"


class Entry(Struct, frozen=True, gc=False):
    """A row of the matrix: component constraints on targets, with a status.

    Attributes:
        targets: names; ``*`` means every target.
        components: constraint per component, ``driver`` included.
        gpus: SKUs that it is for, a MIG slice by its own name; empty: every pool of its targets.
        replacement: alternative to a deprecated or revoked entry, as text or entry name.
        revision: the matrix revision that made this version of the entry.
    """

    name: str
    targets: tuple[str, ...]
    components: dict[str, Constraint]
    status: Status
    reason: str = ""
    gpus: tuple[str, ...] = ()
    replacement: str | None = None
    revision: int = 0

    def matches(self, stack: Stack, pool: Pool) -> bool:
        """Return whether the entry matches the stack on this pool.

        A component that the entry constrains and the stack does not state does not match.
        """
        if self.gpus and not self.is_for(pool):
            return False
        for component, constraint in self.components.items():
            have = pool.driver if component == "driver" else stack.get(component)
            if have is None or not constraint.allows(have):
                return False
        return True

    def differences(self, stack: Stack, pool: Pool) -> list[str]:
        """Return the constrained components that the stack or pool does not meet, or not state."""
        found = []
        for component, constraint in self.components.items():
            have = pool.driver if component == "driver" else stack.get(component)
            if have is None or not constraint.allows(have):
                found.append(component)
        return found

    def is_for(self, pool: Pool) -> bool:
        """Return whether the entry is for the pool's GPU; a whole GPU and a slice differ."""
        return not self.gpus or (pool.gpu is not None and pool.gpu.sku in self.gpus)

    @property
    def specificity(self) -> tuple[int, int]:
        """Return a rank among matching entries: more components, then narrower constraints."""
        exactness = sum(c.exactness for c in self.components.values())
        return (len(self.components) + bool(self.gpus), exactness)


def matches_image(image: str | None, pattern: str) -> bool:
    """Return whether an image reference matches a waiver's glob."""
    return fnmatchcase(image or "", pattern)


class Waiver(Struct, frozen=True, gc=False):
    """A named exception to rules for targets and stacks, until a date.

    Attributes:
        expires: ISO date; the last day on which it holds.
        image: glob on the image reference; None: any stack.
        components: constraints that the stack must meet for the waiver to apply.
    """

    name: str
    rules: tuple[str, ...]
    targets: tuple[str, ...]
    owner: str
    reason: str
    expires: str
    image: str | None = None
    components: dict[str, Constraint] = {}

    def covers(self, target: str, stack: Stack, today: str, driver: Version | None = None) -> bool:
        """Return whether the waiver applies to a stack on a target today (ISO date)."""
        if today > self.expires or not (target in self.targets or ANY_TARGET in self.targets):
            return False
        if self.image is not None and not matches_image(stack.image, self.image):
            return False
        return all(
            (have := driver if name == "driver" else stack.get(name)) is not None
            and constraint.allows(have)
            for name, constraint in self.components.items()
        )


class Evidence(Struct, frozen=True, gc=False):
    """A judged canary run, with the versions measured inside the container.

    Attributes:
        id: id of the run, ``run_...``.
        sku: GPU SKU with MIG profile, as `Gpu.sku`.
        outcome: the judge's result.
        finished: seconds since the epoch.
        development: the run was outside a container; counts only where the policy says so.
    """

    id: str
    suite: str
    sku: str
    driver: Version
    components: dict[str, Version]
    outcome: Literal["passed", "failed", "inconclusive"]
    finished: int
    development: bool = False

    def counts_for(self, policy: CanaryPolicy) -> bool:
        """Return whether a policy accepts the run as evidence."""
        return self.outcome != "inconclusive" and (
            not self.development or policy.accept_development
        )

    def is_about(self, stack: Stack) -> bool:
        """Return whether the run measured this stack, in every component that the stack states."""
        return all(
            (measured := self.components.get(name)) is not None
            and same_release(name, measured, stated)
            for name, stated in stack.components.items()
        )


class EntryIndex:
    """Entries by target, then by the one CUDA series that they pin."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._by_target: dict[str, dict[tuple[int, int] | None, list[Entry]]] = {}
        for entry in entries:
            cuda = entry.components.get("cuda")
            series = cuda.series if cuda else None
            for target in entry.targets:
                self._by_target.setdefault(target, {}).setdefault(series, []).append(entry)

    def matching(self, target: str, stack: Stack, pool: Pool) -> list[Entry]:
        """Return entries that match the stack on a pool of the target, best first."""
        cuda = stack.get("cuda")
        series = cuda.major_minor if cuda else None
        found = {
            entry.name: entry
            for name in (target, ANY_TARGET)
            if (by_series := self._by_target.get(name))
            for entry in (*by_series.get(series, ()), *(by_series.get(None, ()) if series else ()))
            if entry.matches(stack, pool)
        }
        if len(found) < 2:
            return list(found.values())
        return sorted(
            found.values(),
            key=lambda e: (e.specificity, target in e.targets, e.revision),
            reverse=True,
        )

    def nearest(
        self, target: str, stack: Stack, pool: Pool, named: Sequence[str] = ()
    ) -> Entry | None:
        """Return the blessed entry of a target that differs least; the first of several.

        An entry for another GPU counts as one more difference, and so does each part of the stack
        that it must name (``named``) and does not.
        """
        blessed = [entry for entry in self.of(target) if entry.status == "blessed"]

        def distance(entry: Entry) -> int:
            unnamed = sum(name not in entry.components for name in named)
            return len(entry.differences(stack, pool)) + (not entry.is_for(pool)) + unnamed

        return min(blessed, key=distance, default=None)

    def of(self, target: str) -> list[Entry]:
        """Return every entry that concerns a target."""
        found = {
            entry.name: entry
            for name in (target, ANY_TARGET)
            for entries in self._by_target.get(name, {}).values()
            for entry in entries
        }
        return list(found.values())


class Matrix:
    """The organisation's entries, waivers and evidence, at one revision. Immutable."""

    def __init__(
        self,
        revision: int = 0,
        entries: EntryIndex | None = None,
        waivers: Iterable[Waiver] = (),
        evidence: Iterable[Evidence] = (),
    ) -> None:
        self.revision = revision
        self.entries = entries or EntryIndex()
        self.waivers = tuple(waivers)
        self.evidence = tuple(evidence)
        self._runs: dict[tuple[str, str], list[Evidence]] = {}
        for run in self.evidence:
            self._runs.setdefault((run.suite, run.sku), []).append(run)
        self._patterns: dict[str, dict[str, None]] = {}
        for waiver in self.waivers:
            for target in waiver.targets if waiver.image is not None else ():
                self._patterns.setdefault(target, {})[waiver.image or ""] = None

    def runs(self, suite: str, stack: Stack, pool: Pool) -> list[Evidence]:
        """Return judged runs of a suite with this stack on the pool's SKU, on any driver."""
        if pool.gpu is None:
            return []
        return [
            run
            for run in self._runs.get((suite, pool.gpu.sku), ())
            if run.outcome != "inconclusive" and run.is_about(stack)
        ]

    def image_patterns(self, target: str) -> tuple[str, ...]:
        """Return the image globs of a target's waivers: only these depend on the image."""
        found = {**self._patterns.get(target, {}), **self._patterns.get(ANY_TARGET, {})}
        return tuple(found)
