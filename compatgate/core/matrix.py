"""Hold the matrix as the rules see it: entries, waivers and evidence."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import asdict

from compatgate.core.binding import ASSURANCES, Binding, SuiteDefinition, find_digest
from compatgate.core.components import FRAMEWORKS, OF_BUILDS
from compatgate.core.constraints import Constraint
from compatgate.core.facts.nvidia import Gpu
from compatgate.core.gpus import ANY_SLICE
from compatgate.core.needs import Needs
from compatgate.core.request import CanaryPolicy, Pool
from compatgate.core.stack import Stack
from compatgate.core.versions import Version, parse_version, same_release

EntryStatus = Literal["candidate", "blessed", "deprecated", "revoked"]
STATUSES_IN_USE: tuple[EntryStatus, ...] = ("blessed", "deprecated")
"""Statuses of entries that running workloads may match."""
ANY_TARGET = "*"


class Entry(Struct, frozen=True, gc=False):
    """A row of the matrix: component constraints on targets, with a status."""

    name: str
    targets: tuple[str, ...]  # names; ``*`` means every target
    components: dict[str, Constraint]  # constraint per component, ``driver`` included
    status: EntryStatus
    reason: str = ""
    # SKUs that it is for, a MIG slice by its own name, each slice of a GPU as ``NAME/mig-*``;
    # empty: every pool of its targets
    gpus: tuple[str, ...] = ()
    # alternative to a deprecated or revoked entry, as text or entry name
    replacement: str | None = None
    revision: int = 0  # the matrix revision that made this version of the entry
    needs: Needs | None = None  # what its workloads need of each GPU; None: nothing is stated
    # GPU contents whose passed runs blessed it; empty: unknown, or a person blessed it
    blessed_contents: tuple[str, ...] = ()

    def matches(self, stack: Stack, pool: Pool) -> bool:
        """Return whether the entry matches the stack on this pool.

        A component that the entry constrains and the stack does not state does not match.
        """
        return self.is_for(pool) and _meets(self.components.items(), stack, pool)

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
        return not self.gpus or self.names(pool.gpu)

    def names(self, gpu: Gpu | None) -> bool:
        """Return whether the entry names a GPU or slice; a whole GPU is none of its slices."""
        if gpu is None:
            return False
        return gpu.sku in self.gpus or (gpu.mig is not None and gpu.name + ANY_SLICE in self.gpus)

    @property
    def specificity(self) -> tuple[int, int]:
        """Return a rank among matching entries: more components, then narrower constraints."""
        exactness = sum(c.exactness for c in self.components.values())
        return (len(self.components) + bool(self.gpus), exactness)


def _meets(conditions: Iterable[tuple[str, Constraint]], stack: Stack, pool: Pool) -> bool:
    for component, constraint in conditions:
        have = pool.driver if component == "driver" else stack.get(component)
        if have is None or not constraint.allows(have):
            return False
    return True


def matches_image(image: str | None, pattern: str) -> bool:
    """Return whether an image reference matches a waiver's glob."""
    return fnmatchcase(image or "", pattern)


class Waiver(Struct, frozen=True, gc=False):
    """A named exception to rules for targets and stacks, until a date."""

    name: str
    rules: tuple[str, ...]
    targets: tuple[str, ...]
    owner: str
    reason: str
    expires: str  # ISO date; the last day on which it holds
    image: str | None = None  # glob on the image reference; None: any stack
    # constraints that the stack must meet for the waiver to apply
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
    """A judged canary run, with the versions measured inside the container."""

    id: str
    suite: str
    sku: str  # GPU SKU with MIG profile, as `Gpu.sku`
    driver: Version
    components: dict[str, Version]
    outcome: Literal["passed", "failed", "inconclusive"]
    finished: int  # seconds since the epoch
    # the run was outside a container; counts only where the policy says so
    development: bool = False
    # what it was bound to besides; None: it was judged before this was recorded
    bound: Binding | None = None

    @staticmethod
    def read(*, driver: str, components: Mapping[str, str], **others: Any) -> Evidence:
        """Return evidence whose versions are stated as text."""
        versions = {name: parse_version(name, text) for name, text in components.items()}
        return Evidence(driver=parse_version("driver", driver), components=versions, **others)

    def to_text(self) -> dict[str, Any]:
        """Return the members by name, versions as text."""
        components = {name: version.text for name, version in self.components.items()}
        return {**asdict(self), "driver": self.driver.text, "components": components}

    @property
    def content(self) -> str | None:
        """Return the digest of the GPU content that ran; None: unknown."""
        return self.bound.content if self.bound else None

    @property
    def assurance(self) -> int:
        """Return the place of the run's assurance in `ASSURANCES`; unknown counts as the least."""
        stated = self.bound.assurance if self.bound else ""
        return ASSURANCES.index(stated) if stated else 0

    def counts_for(self, policy: CanaryPolicy) -> bool:
        """Return whether a policy accepts the run as evidence.

        A failed run counts whatever stands behind it.
        """
        if self.outcome == "inconclusive" or (self.development and not policy.accept_development):
            return False
        least = policy.assurance
        return (
            least == ASSURANCES[0]
            or self.outcome == "failed"
            or self.assurance >= ASSURANCES.index(least)
        )

    def is_about(self, stack: Stack) -> bool:
        """Return whether the run measured this stack, in every component that the stack states.

        A run of a framework is about stacks with this framework only: its own GPU code was run,
        not that of a stack that names the same CUDA. What a build was made with is not among what
        a run measures.
        """
        stated = stack.components
        if any(name in FRAMEWORKS and name not in stated for name in self.components):
            return False
        return all(
            (measured := self.components.get(name)) is not None
            and same_release(name, measured, version)
            for name, version in stated.items()
            if name not in OF_BUILDS
        )

    def contradicts(self, stack: Stack) -> bool:
        """Return whether the run measured another version of a component that a stack states."""
        return any(
            (measured := self.components.get(name)) is not None
            and not same_release(name, measured, version)
            for name, version in stack.components.items()
            if name not in OF_BUILDS
        )


class _IndexedEntry(NamedTuple):
    entry: Entry
    conditions: tuple[tuple[str, Constraint], ...]


class EntryIndex:
    """Entries by target, then by the one CUDA series that they pin."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._by_target: dict[str, dict[tuple[int, int] | None, list[_IndexedEntry]]] = {}
        self._revoked: dict[str, list[Entry]] = {}
        for entry in entries:
            cuda = entry.components.get("cuda")
            series = cuda.series if cuda else None
            # The narrowest constraint first: most entries already fail it, and the rest is not
            # asked. The driver last among equals: a target's entries mostly share it.
            conditions = sorted(
                entry.components.items(), key=lambda one: (-one[1].exactness, one[0] == "driver")
            )
            indexed = _IndexedEntry(entry, tuple(conditions))
            for target in entry.targets:
                self._by_target.setdefault(target, {}).setdefault(series, []).append(indexed)
                if entry.status == "revoked":
                    self._revoked.setdefault(target, []).append(entry)
        self._specificities: dict[str, tuple[int, int]] = {}

    def matching(self, target: str, stack: Stack, pool: Pool) -> list[Entry]:
        """Return entries that match the stack on a pool of the target, best first."""
        cuda = stack.get("cuda")
        series = cuda.major_minor if cuda else None
        found = {
            entry.name: entry
            for name in (target, ANY_TARGET)
            if (by_series := self._by_target.get(name))
            for entry, conditions in (
                *by_series.get(series, ()),
                *(by_series.get(None, ()) if series else ()),
            )
            if entry.is_for(pool) and _meets(conditions, stack, pool)
        }
        return self._sort(target, found.values())

    def revoked(self, target: str, stack: Stack) -> list[Entry]:
        """Return revoked entries of a target that the stack's CUDA does not exclude, best first."""
        if not self._revoked:
            return []
        cuda = stack.get("cuda")
        found = {
            entry.name: entry
            for name in (target, ANY_TARGET)
            for entry in self._revoked.get(name, ())
            if cuda is None
            or (series := entry.components.get("cuda")) is None
            or series.series in (None, cuda.major_minor)
        }
        return self._sort(target, found.values())

    def _sort(self, target: str, entries: Collection[Entry]) -> list[Entry]:
        if len(entries) < 2:
            return list(entries)
        return sorted(entries, key=lambda entry: self.rank(entry, target), reverse=True)

    def rank(self, entry: Entry, target: str) -> tuple[tuple[int, int], bool, int]:
        """Return the rank of an entry among those of a target: the highest decides."""
        found = self._specificities.get(entry.name)
        if found is None:
            found = self._specificities[entry.name] = entry.specificity
        return found, target in entry.targets, entry.revision

    def nearest(
        self, target: str, stack: Stack, pool: Pool, named: Sequence[str] = ()
    ) -> Entry | None:
        """Return the blessed entry of a target that differs least; the first of several.

        The framework weighs most: an entry that shares no framework with a stack is no alternative,
        however alike the rest; then counts each framework that the stack lacks. An entry for
        another GPU counts as one more difference, and so does each part of the stack that it must
        name (``named``) and does not.
        """
        blessed = [entry for entry in self.of(target) if entry.status == "blessed"]
        ours = FRAMEWORKS.intersection(stack.components)

        def distance(entry: Entry) -> tuple[bool, int, int]:
            theirs = FRAMEWORKS.intersection(entry.components)
            unnamed = sum(name not in entry.components for name in named)
            others = len(entry.differences(stack, pool)) + (not entry.is_for(pool)) + unnamed
            return bool(ours) and not (theirs & ours), len(theirs - ours), others

        return min(blessed, key=distance, default=None)

    def of(self, target: str) -> list[Entry]:
        """Return every entry that concerns a target."""
        found = {
            entry.name: entry
            for name in (target, ANY_TARGET)
            for entries in self._by_target.get(name, {}).values()
            for entry, _ in entries
        }
        return list(found.values())


_NO_SUITES: Mapping[str, SuiteDefinition] = {}


class Matrix:
    """The organisation's entries, waivers and evidence, at one revision. Immutable.

    Attributes:
        suites: definitions of the suites now, by name; evidence of another one is stale.
    """

    def __init__(
        self,
        revision: int = 0,
        entries: EntryIndex | None = None,
        waivers: Iterable[Waiver] = (),
        evidence: Iterable[Evidence] = (),
        suites: Mapping[str, SuiteDefinition] = _NO_SUITES,
    ) -> None:
        self.revision = revision
        self.entries = entries or EntryIndex()
        self.waivers = tuple(waivers)
        self.evidence = tuple(evidence)
        self.suites = suites
        self._runs: dict[tuple[str, str], list[Evidence]] = {}
        for run in self.evidence:
            self._runs.setdefault((run.suite, run.sku), []).append(run)
        self._patterns: dict[str, dict[str, None]] = {}
        for waiver in self.waivers:
            for target in waiver.targets if waiver.image is not None else ():
                self._patterns.setdefault(target, {})[waiver.image or ""] = None

    def replace(self, **changes: Any) -> Matrix:
        """Return this matrix with other values of some arguments."""
        names = ("revision", "entries", "waivers", "evidence", "suites")
        return Matrix(**{name: getattr(self, name) for name in names} | changes)

    def runs(self, suite: str, pool: Pool) -> Sequence[Evidence]:
        """Return the runs of a suite on the pool's SKU, on any driver and of any stack."""
        return self._runs.get((suite, pool.gpu.sku), ()) if pool.gpu is not None else ()

    def image_patterns(self, target: str) -> tuple[str, ...]:
        """Return the image globs of a target's waivers: only these depend on the image."""
        found = {**self._patterns.get(target, {}), **self._patterns.get(ANY_TARGET, {})}
        return tuple(found)

    def describe_image(
        self, image: str | None, target: str, policy: CanaryPolicy | None
    ) -> tuple[list[bool], bool, str | None]:
        """Return all that an assessment depends on of an image's reference.

        Return whether each image glob of the target's waivers matches; whether an image is named,
        as pins are assumed for none; and the digest, where evidence is bound to it. ``policy`` is
        None where the target is not known.
        """
        waived = [matches_image(image, glob) for glob in self.image_patterns(target)]
        bound = policy is not None and policy.bind == "image"
        return waived, image is not None, find_digest(image) if bound else None
