"""Hold the matrix as the rules see it: entries, waivers and evidence, with version constraints.

Constraints are written as ``>=535.104.05,<536`` or ``12.4.*``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Literal

from msgspec import Struct

from compatgate.core.binding import ASSURANCES, Binding, SuiteDefinition, find_digest
from compatgate.core.components import FRAMEWORKS, OF_BUILDS, resolve_component
from compatgate.core.facts.nvidia import Gpu
from compatgate.core.gpus import ANY_SLICE
from compatgate.core.needs import Needs
from compatgate.core.request import CanaryPolicy, Pool
from compatgate.core.stack import Stack
from compatgate.core.versions import (
    Version,
    format_parts,
    make_version,
    parse_version,
    same_release,
)
from compatgate.errors import BadInput

Operator = Literal["==", "!=", ">=", "<=", ">", "<", "~=", "==*", "!=*"]
_CLAUSE = re.compile(r"(==|!=|>=|<=|~=|>|<|=)?\s*((?:\d+!)?[^\s=<>!~,]+)")


class Clause(Struct, frozen=True, gc=False):
    """One comparison; ``==*`` and ``!=*`` compare a prefix."""

    operator: Operator
    version: Version

    def allows(self, have: Version) -> bool:
        """Return whether a version satisfies this clause, as PEP 440 compares whole versions.

        Pre-releases compare like any other.
        """
        want = self.version
        if have.whole or want.whole:
            return _compare_whole(self.operator, _spell(want), _spell(have))
        match self.operator:
            case "==":
                return self._is(have)
            case "!=":
                return not self._is(have)
            case ">=":
                return have.key >= want.key
            case "<=":
                return have.key <= want.key
            case ">":
                return have.key > want.key
            case "<":
                return have.key < want.key
            case "~=":
                places = max(len(want.parts) - 1, 1)
                return have.key >= want.key and have.at(places) == want.at(places)
            case "==*":
                return have.at(len(want.parts)) == want.parts
            case "!=*":
                return have.at(len(want.parts)) != want.parts

    def _is(self, have: Version) -> bool:
        """Compare the release, and the label where the clause names one (``2.4.1+cu121``)."""
        want = self.version
        return have.key == want.key and (not want.local or have.local == want.local)


def _spell(version: Version) -> str:
    """Return a version as PEP 440 writes it."""
    label = f"+{version.local}" if version.local else ""
    return version.whole or format_parts(version.parts) + label


@lru_cache(maxsize=4096)
def _compare_whole(operator: Operator, want: str, have: str) -> bool:
    """Compare versions of which numbers and label do not say all, like ``2.4.1.post1``."""
    from packaging.specifiers import Specifier

    bound = f"{operator[:2]}{want}.*" if operator.endswith("*") else f"{operator}{want}"
    return Specifier(bound).contains(have, prereleases=True)


class Constraint(Struct, frozen=True, gc=False):
    """A constraint on a version: all clauses must hold.

    Attributes:
        text: the constraint as written.
        clauses: its comparisons, in order.
    """

    text: str
    clauses: tuple[Clause, ...]

    def allows(self, have: Version) -> bool:
        """Return whether a version satisfies every clause."""
        for clause in self.clauses:  # noqa: SIM110 - asked for every entry and issue
            if not clause.allows(have):
                return False
        return True

    @property
    def series(self) -> tuple[int, int] | None:
        """Return the only ``major.minor`` that can satisfy this constraint; None for several."""
        for clause in self.clauses:
            if clause.operator in ("==", "==*") and len(clause.version.parts) >= 2:
                return clause.version.major_minor
            if clause.operator == "~=" and len(clause.version.parts) >= 3:
                return clause.version.major_minor
        return None

    @property
    def is_empty(self) -> bool:
        """Return whether two bounds leave nothing between them (``>=536,<535``)."""
        least = [c for c in self.clauses if c.operator in (">=", ">", "==", "~=", "==*")]
        most = [c for c in self.clauses if c.operator in ("<=", "<")]
        return any(
            low.version.key > high.version.key
            or (low.version.key == high.version.key and "=" not in high.operator)
            for low in least
            for high in most
        )

    @property
    def exactness(self) -> int:
        """Rank how narrow it is: 3 one version, 2 one series, 1 a range, 0 open."""
        operators = {clause.operator for clause in self.clauses}
        if "==" in operators:
            return 3
        if operators & {"==*", "~="}:
            return 2
        return 1 if len(self.clauses) > 1 else 0

    def __str__(self) -> str:
        return self.text


@lru_cache(maxsize=16384)
def parse_constraint(component: str, text: str) -> Constraint:
    """Read a constraint on a component's version.

    Args:
        component: canonical name of the component.
        text: clauses separated by commas; a bare version means ``==``, ``.*`` any tail.

    Raises:
        BadInput: a clause is malformed; names the component and shows a correct constraint.
    """
    scheme = resolve_component(component).component.scheme
    if not text.isascii():
        raise _constraint_error(component, text)
    clauses = []
    for part in text.split(","):
        match = _CLAUSE.fullmatch(part.strip())
        if not match:
            raise _constraint_error(component, text)
        operator, literal = match[1] or "==", match[2]
        version = _read_bound(component, scheme, literal, text)
        wildcard = literal.endswith((".*", ".x"))
        if wildcard and operator not in ("==", "=", "!="):
            raise _constraint_error(component, text)
        if version.local and (wildcard or operator not in ("==", "=", "!=")):
            raise _constraint_error(
                component, text, f"a build label goes with == or !=: =={literal}"
            )
        if len(version.parts) == 1 and not wildcard and operator in ("==", "=", "!=", "~="):
            raise _constraint_error(
                component, text, f"{literal} alone would mean {literal}.0; write {literal}.*"
            )
        if match[1] is None and scheme in ("cuda", "python") and len(version.parts) == 2:
            wildcard = True  # a bare 12.4 names the series, as users and the driver API do
        name = "==" if operator == "=" else operator
        clause = Clause(f"{name}*" if wildcard else name, version)  # type: ignore[arg-type]
        if wildcard and version.whole:
            raise _constraint_error(component, text, f"{literal}: .* follows numbers alone")
        clauses.append(clause)
    return Constraint(text, tuple(clauses))


def _read_bound(component: str, scheme: str, literal: str, text: str) -> Version:
    """Read a bound, which may be shorter than a version: a driver branch, a major alone."""
    stem = literal[:-2] if literal.endswith((".*", ".x")) else literal
    shorter = stem != literal or scheme != "pep440"
    dotted = re.fullmatch(r"\d{1,4}(\.\d{1,4}){0,3}", stem)
    if scheme == "msvc" and stem != "19":
        shorter = False  # 14.38 and 1938 mean 19.38
    if shorter and dotted and (len(stem) < 4 or "." in stem or scheme == "driver"):
        parts = tuple(int(p) for p in stem.split("."))
        return make_version(literal, parts[:3] if scheme in ("cudnn", "nccl") else parts)
    try:
        return parse_version(component, stem)
    except BadInput:
        raise _constraint_error(component, text) from None


def _constraint_error(
    component: str, text: str, hint: str = "like 12.4.*, ~=2.4.0, ==9.1.0 or >=535.104.05,<536"
) -> BadInput:
    return BadInput(
        f"{text!r} is not a version constraint",
        field=component,
        value=text,
        hint=hint,
    )


EntryStatus = Literal["candidate", "blessed", "deprecated", "revoked"]
STATUSES_IN_USE: tuple[EntryStatus, ...] = ("blessed", "deprecated")
"""Statuses of entries that running workloads may match."""
ANY_TARGET = "*"


class Entry(Struct, frozen=True, gc=False):
    """A row of the matrix: component constraints on targets, with a status.

    Attributes:
        targets: names; ``*`` means every target.
        components: constraint per component, ``driver`` included.
        gpus: SKUs that it is for, a MIG slice by its own name, each slice of a GPU as
            ``NAME/mig-*``; empty: every pool of its targets.
        replacement: alternative to a deprecated or revoked entry, as text or entry name.
        revision: the matrix revision that made this version of the entry.
        needs: what its workloads need of each GPU; None: nothing is stated.
        blessed_contents: GPU contents whose passed runs blessed it; empty: unknown, or a person
            blessed it.
    """

    name: str
    targets: tuple[str, ...]
    components: dict[str, Constraint]
    status: EntryStatus
    reason: str = ""
    gpus: tuple[str, ...] = ()
    replacement: str | None = None
    revision: int = 0
    needs: Needs | None = None
    blessed_contents: tuple[str, ...] = ()

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
        bound: what it was bound to besides; None: it was judged before this was recorded.
    """

    id: str
    suite: str
    sku: str
    driver: Version
    components: dict[str, Version]
    outcome: Literal["passed", "failed", "inconclusive"]
    finished: int
    development: bool = False
    bound: Binding | None = None

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


class EntryIndex:
    """Entries by target, then by the one CUDA series that they pin."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._by_target: dict[str, dict[tuple[int, int] | None, list[Entry]]] = {}
        self._revoked: dict[str, list[Entry]] = {}
        for entry in entries:
            cuda = entry.components.get("cuda")
            series = cuda.series if cuda else None
            for target in entry.targets:
                self._by_target.setdefault(target, {}).setdefault(series, []).append(entry)
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
            for entry in (*by_series.get(series, ()), *(by_series.get(None, ()) if series else ()))
            if entry.matches(stack, pool)
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
        return self._specificity(entry), target in entry.targets, entry.revision

    def _specificity(self, entry: Entry) -> tuple[int, int]:
        found = self._specificities.get(entry.name)
        if found is None:
            found = self._specificities[entry.name] = entry.specificity
        return found

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
            for entry in entries
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

    def runs(self, suite: str, pool: Pool) -> Sequence[Evidence]:
        """Return the runs of a suite on the pool's SKU, on any driver and of any stack."""
        return self._runs.get((suite, pool.gpu.sku), ()) if pool.gpu is not None else ()

    def image_patterns(self, target: str) -> tuple[str, ...]:
        """Return the image globs of a target's waivers: only these depend on the image."""
        found = {**self._patterns.get(target, {}), **self._patterns.get(ANY_TARGET, {})}
        return tuple(found)

    def describe_image(
        self, image: str | None, target: str, policy: CanaryPolicy | None
    ) -> tuple[list[bool], str | None]:
        """Return all that an assessment depends on of an image's reference.

        Args:
            image: as in the question.
            target: name of the target; "": none.
            policy: of its canaries; None: the target is not known.

        Returns:
            Whether each image glob of the target's waivers matches; and the digest, where evidence
            is bound to it.
        """
        waived = [matches_image(image, glob) for glob in self.image_patterns(target)]
        bound = policy is not None and policy.bind == "image"
        return waived, find_digest(image) if bound else None
