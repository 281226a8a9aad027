"""Represent entries of the matrix by stacks.

Each constraint of an entry becomes a version: on a pool an entry is represented by the stack
that a canary run measured there, and by the newest and the oldest versions that it allows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Literal
from weakref import WeakKeyDictionary

from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.components import is_framework, sort_components
from compatgate.core.constraints import Constraint, parse_constraint
from compatgate.core.facts import Facts
from compatgate.core.facts.frameworks import Pin, Release
from compatgate.core.matrix import Entry, Evidence, Matrix
from compatgate.core.request import Pool
from compatgate.core.stack import Stack, format_stack, stack_of
from compatgate.core.stack_facts import find_build, find_release
from compatgate.core.versions import Version, format_parts, parse_version
from compatgate.errors import BadInput

End = Literal["newest", "oldest"]
ENDS: tuple[End, ...] = ("newest", "oldest")
_MAX_KNOWN = 8192
_known: WeakKeyDictionary[Facts, dict[tuple[tuple[str, Constraint], ...], EntryStacks]] = (
    WeakKeyDictionary()
)
"""Representations by constraints: thousands of entries have a few dozen different ones."""


class EntryStacks(Struct, frozen=True):
    """The stacks that represent an entry."""

    # the newest that it allows, then the oldest where that differs; empty where ``open`` says why
    # there is none
    stacks: tuple[Stack, ...] = ()
    open: tuple[str, ...] = ()  # what the entry leaves open, in words


def represent(entry: Entry, facts: Facts) -> EntryStacks:
    """Return the stacks that represent an entry.

    A framework is the newest (oldest) known release that its constraint allows, CUDA and Python the
    newest (oldest) that have a build of it, libraries what that build pins; where the constraint
    allows none of these, the newest (oldest) known version that it allows. The entry's constraint
    on the driver is left out.
    """
    known = _known.setdefault(facts, {})
    key = tuple(entry.components.items())
    if (found := known.get(key)) is None:
        if len(known) >= _MAX_KNOWN:
            known.clear()
        found = known[key] = _represent(entry.components, facts)
    return found


def _represent(constraints: Mapping[str, Constraint], facts: Facts) -> EntryStacks:
    names = [name for name in sort_components(constraints) if name != "driver"]
    if not names:
        return EntryStacks(open=("it names no component of a stack, so what runs is not known",))
    newest, oldest = (_Selection(constraints, facts, end).choose() for end in ENDS)
    if missing := [
        f"no known version of {name} meets {constraints[name]}"
        for name in names
        if name not in newest
    ]:
        return EntryStacks(open=tuple(missing))
    stacks = [stack_of(newest), stack_of(oldest)]
    return EntryStacks(tuple(stacks[:1] if stacks[0] == stacks[1] else stacks))


def list_stacks(entry: Entry, facts: Facts) -> Iterator[Stack]:
    """Yield stacks that an entry allows, each once.

    The newest and the oldest come first, then those of each known release of its framework, or of
    CUDA where it names no framework.
    """
    seen: list[Stack] = []
    names = sort_components(entry.components)
    name = next((one for one in names if is_framework(one)), "cuda")
    constraint = entry.components.get(name)
    known = sorted(known_versions(facts, name), reverse=True) if constraint else []
    pinned = [
        replace(
            entry, components={**entry.components, name: parse_constraint(name, f"=={version}")}
        )
        for version in known
        if constraint and constraint.allows(version)
    ]
    for one in (entry, *pinned):
        for stack in represent(one, facts).stacks:
            if stack not in seen:
                seen.append(stack)
                yield stack


class _Selection:
    def __init__(self, constraints: Mapping[str, Constraint], facts: Facts, end: End) -> None:
        self._constraints = constraints
        self._facts = facts
        self._end = end
        self._versions: dict[str, Version] = {}

    def choose(self) -> dict[str, Version]:
        """Return a version for each name: frameworks decide on CUDA and Python, then on the rest.

        A name without a version that meets its constraint is left out.
        """
        frameworks = [name for name in self._constraints if is_framework(name)]
        for name in frameworks:
            self._take(name, self._outermost(name))
        for _, release in self._releases():  # a framework may pin another one (vLLM: torch)
            for pin in release.pins.values():
                if pin.component in frameworks:
                    self._take(pin.component, self._pinned(pin.component, {pin.component: pin}))
        self._take("cuda", self._cuda())
        self._take("python", self._python())
        cuda = self._versions.get("cuda")
        builds = (find_build(release, version, cuda) for version, release in self._releases())
        pins = {pin.component: pin for one in builds if one for pin in one.pins.values()}
        for name in self._constraints:
            if name not in self._versions and name != "driver":
                self._take(name, self._pinned(name, pins) or self._outermost(name))
        return self._versions

    def _take(self, name: str, version: Version | None) -> None:
        if version is not None:
            self._versions[name] = version

    def _cuda(self) -> Version | None:
        constraint = self._constraints.get("cuda")
        if constraint is None:
            made_for = {build.cuda for _, r in self._releases() for build in r.builds if build.cuda}
            known = [parse_version("cuda", format_parts(pair)) for pair in made_for]
        else:
            known = [v for v in known_versions(self._facts, "cuda") if constraint.allows(v)]
        fitting = [
            v for v in known if all(find_build(r, version, v) for version, r in self._releases())
        ]
        if fitting or known:
            return self._end_of(fitting or known)
        return _version_of_constraint("cuda", constraint) if constraint else None

    def _python(self) -> Version | None:
        constraint = self._constraints.get("python")
        wheels = [release.python for _, release in self._releases() if release.python]
        if constraint is None or not wheels:
            return None
        common = set(wheels[0]).intersection(*wheels[1:])
        known = [parse_version("python", text) for text in common if not text.endswith("t")]
        fitting = [version for version in known if constraint.allows(version)]
        return self._end_of(fitting) if fitting else None

    def _releases(self) -> Iterator[tuple[Version, Release]]:
        for name, version in list(self._versions.items()):
            table = self._facts.framework(name)
            release = find_release(table, version) if table else None
            if release:
                yield version, release

    def _pinned(self, name: str, pins: dict[str, Pin]) -> Version | None:
        pin, constraint = pins.get(name), self._constraints[name]
        if pin is None or pin.floor is None or pin.optional or not constraint.allows(pin.floor):
            return None
        return parse_version(name, format_parts(pin.floor.at(3)))

    def _outermost(self, name: str) -> Version | None:
        constraint = self._constraints[name]
        allowed = [v for v in known_versions(self._facts, name) if constraint.allows(v)]
        return self._end_of(allowed) if allowed else _version_of_constraint(name, constraint)

    def _end_of(self, versions: list[Version]) -> Version:
        return max(versions) if self._end == "newest" else min(versions)


def _version_of_constraint(name: str, constraint: Constraint) -> Version | None:
    """Return a version that the constraint names; rules report it where facts do not know it."""
    for clause in constraint.clauses:
        if clause.operator in (">=", "==", "~=", "<=", "==*"):
            try:
                version = parse_version(name, clause.version.text.removesuffix(".*"))
            except BadInput:  # a major alone is no version
                continue
            if constraint.allows(version):
                return version
    return None


def known_versions(facts: Facts, name: str) -> Iterable[Version]:
    """Return every version of a component that the facts know; empty for other components."""
    if name == "cuda":
        return [toolkit.version for toolkit in facts.cuda_driver.toolkits]
    if name == "cudnn":
        return [release.version for release in facts.cudnn.releases]
    if name == "nccl":
        return [release.version for release in facts.nccl.releases]
    table = facts.framework(name)
    return [release.version for release in table.releases] if table else []


_MAX_RUNS = 256  # runs of a SKU, newest first; older runs represent an entry no better


class StackSamples:
    """Chooses the stacks that represent entries."""

    def __init__(self, facts: Facts, matrix: Matrix) -> None:
        self._facts = facts
        self._runs: dict[str, list[Evidence]] = {}
        for run in matrix.evidence:
            if run.outcome == "passed":
                self._runs.setdefault(run.sku, []).append(run)
        for sku, runs in self._runs.items():
            runs.sort(key=lambda run: run.finished, reverse=True)
            self._runs[sku] = runs[:_MAX_RUNS]

    def of(self, entry: Entry, pools: Sequence[Pool]) -> tuple[list[list[Stack]], tuple[str, ...]]:
        """Return the stacks of an entry on each of some pools, and what it leaves open.

        The first stack of a pool is the one that its newest passed canary run measured, if the
        entry allows it; then follow the newest and the oldest stack that the entry allows.
        """
        represented = represent(entry, self._facts)
        found: list[list[Stack]] = []
        for pool in pools:
            runs = self._runs.get(pool.gpu.sku, ()) if pool.gpu else ()
            measured = (
                stack
                for run in runs
                if (stack := Stack({n: v for n, v in run.components.items() if n != "driver"}))
                if stack.components and entry.matches(stack, replace(pool, driver=run.driver))
            )
            found.append([*islice(measured, 1), *represented.stacks])
        return found, represented.open


def entry_stack_text(entry: Entry, facts: Facts) -> str:
    """Return the newest stack that an entry allows, as text; empty: none can be made."""
    stacks = represent(entry, facts).stacks
    return format_stack(stacks[0].to_json()) if stacks else ""
