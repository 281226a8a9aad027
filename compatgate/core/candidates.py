"""List the versions that each part of a stack may have, best first.

Planners and the solver ask the same question: which releases, builds, CUDAs, Pythons and packages
do the facts know that a stack could consist of? Nothing here decides whether a stack works; the
evaluation does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from compatgate.core.components import resolve_component
from compatgate.core.constraints import Constraint, parse_constraint
from compatgate.core.entry_stacks import known_versions
from compatgate.core.facts import Facts
from compatgate.core.facts.frameworks import Build, Release
from compatgate.core.facts.packages import NO_GPU_CODE
from compatgate.core.package_wheels import covers_release
from compatgate.core.request import Pool
from compatgate.core.stack import canonical_key
from compatgate.core.stack_facts import accepts
from compatgate.core.versions import Version, format_parts, parse_version
from compatgate.errors import BadInput

if TYPE_CHECKING:
    from compatgate.core.facts.records import Statement

Constraints = Sequence[Constraint]
_NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")
_NAMED_VERSION = re.compile(r"(?:==|>=|<=|~=)\s*([0-9][^\s,*]*)")
_LATEST_PYTHON = 30  # Python 3.x up to here are tried where metadata states no upper end


class Choice(Struct, frozen=True):
    """A version of one part of a stack, and what comes with it."""

    name: str
    # value as a stack states it: ``2.8.0+cu128``, ``2.8.3[sm_80+sm_90]``; empty: the stack does not
    # have the part
    text: str
    version: Version | None = None  # the version; None where the stack does not have the part
    release: Release | None = None
    build: Build | None = None
    # further parts that the build needs, by name (JAX: its plugins)
    brings: tuple[tuple[str, str], ...] = ()


Chosen = Mapping[str, Choice]


class _KnownRelease(Struct, frozen=True):
    statements: tuple[Statement, ...]
    measured: bool  # a wheel of it has a record
    labels: frozenset[str]  # of its builds, by statements and records


class Candidates:
    """Lists choices for the parts of a stack; remembers what it reads of the facts.

    The systems and GPUs of ``pools`` select builds and code; ``labels`` are those of the builds
    that another index has (None: any).
    """

    def __init__(
        self, facts: Facts, pools: Sequence[Pool], labels: frozenset[str] | None = None
    ) -> None:
        self._facts = facts
        self._labels = labels
        self._pools = pools
        self._frameworks: dict[str, list[Choice]] = {}
        self._packages: dict[str, list[Version]] = {}
        self._brought: dict[str, set[str]] = {}
        self._requires: dict[tuple[str, str], dict[str, str]] = {}
        self._releases: dict[tuple[str, str], _KnownRelease] = {}

    def has_builds(self, name: str) -> bool:
        """Tell whether the facts list releases and builds of a part."""
        return name in self._facts.framework_names

    def implied(self, names: Iterable[str]) -> list[str]:
        """Return the frameworks that some parts are built on, without those already named."""
        named = list(names)
        found = list(named)
        for name in found:
            for other in self._builds_on(name):
                if other not in found:
                    found.append(other)
        return found[len(named) :]

    def _builds_on(self, name: str) -> set[str]:
        facts = self._facts
        if table := facts.framework(name):
            pins = (pin for release in table.releases for pin in release.pins)
            return {pin for pin in pins if self.has_builds(pin)}
        recorded = facts.recorded_name(name, None)
        texts = [text for record in facts.records(recorded) for text in record.requires]
        said = facts.statements(recorded)
        texts += [text for one in said for text in one.requires]
        found = {
            canonical_key(match[1])
            for text in texts
            if "extra" not in text and (match := _NAME.match(text))
        }
        if any(one.torch_wheels for one in said):
            found.add("torch")
        return {other for other in found if other != name and self.has_builds(other)}

    def brings(self, framework: str, part: str) -> bool:
        """Tell whether a framework installs a part with it: a release requires or pins the part.

        The libraries of CUDA's toolkit are required by others in turn. A part that is built on
        another framework, such as xformers of vLLM, is a part of its own.
        """
        if part in ("cuda", "python") or self.has_builds(part):
            return False
        if framework not in self._brought:
            table = self._facts.framework(framework)
            releases = table.releases if table else ()
            of: list[Release | Build] = [*releases, *(b for r in releases for b in r.builds)]
            texts = {match[1] for one in of for t in one.requires if (match := _NAME.match(t))}
            pins = {name for one in of for name in one.pins}
            self._brought[framework] = {*map(canonical_key, texts), *pins}
        if part in self._facts.cuda_components.by_package:
            return True
        return part in self._brought[framework] and self._builds_on(part) <= {framework}

    def is_built_on(self, part: str, framework: str) -> bool:
        """Tell whether a part is built on a framework: for another release it is another one."""
        return framework in self._builds_on(part)

    def framework(self, name: str) -> list[Choice]:
        """Return every build of every release, newest first; the index's own wheel first."""
        if name not in self._frameworks:
            table = self._facts.framework(name)
            releases = reversed(table.releases) if table else ()
            systems = {"linux" if pool.os == "wsl" else pool.os for pool in self._pools}
            self._frameworks[name] = [
                choice
                for release in releases
                if systems <= set(release.os or (table.os if table else ()))
                for choice in self._builds(name, release)
                if self._is_offered(choice.text.partition("+")[2])
            ]
        return self._frameworks[name]

    def _is_offered(self, label: str) -> bool:
        return self._labels is None or not label or label in self._labels

    def _builds(self, name: str, release: Release) -> Iterator[Choice]:
        newest = sorted(
            release.builds, key=lambda build: build.cuda or (build.cuda_major, 0), reverse=True
        )
        own = [build for build in newest if build.default]
        others = [build for build in newest if not build.default]
        for build in own:
            yield self._choice(name, release, build, release.version.text)
        for build in sorted(others, key=lambda build: not build.listed):
            text = release.version.text
            yield self._choice(
                name, release, build, f"{text}+{build.label}" if build.label else text
            )
        for build in own:
            if build.label:  # from the project's index, where the other index has no CUDA
                text = f"{release.version.text}+{build.label}"
                yield self._choice(name, release, build, text)

    def _choice(self, name: str, release: Release, build: Build, text: str) -> Choice:
        brings = []
        for plugin in build.plugins:
            # The newest known version that the release requires, else that of the release.
            spec = _requirements((*release.requires, *build.requires)).get(plugin, "")
            known = reversed(self._facts.recorded_versions(plugin)) if spec else ()
            fitting = (v.text for v in known if _meets(spec, v.public))
            brings.append((plugin, next(fitting, release.version.public)))
        return Choice(name, text, parse_version(name, text), release, build, tuple(brings))

    def cudas(self, chosen: Chosen, constraints: Constraints) -> list[Choice]:
        """Return the CUDAs that every chosen build accepts, newest first."""
        builds = [choice.build for choice in chosen.values() if choice.build]
        made_for = {build.cuda for build in builds if build.cuda}
        toolkits = [toolkit.version for toolkit in self._facts.cuda_driver.toolkits]
        pairs = made_for or {version.major_minor for version in toolkits}
        series = [parse_version("cuda", format_parts(pair)) for pair in pairs]
        fitting: dict[str, Version] = {}
        for known in (series, toolkits):  # an update of a toolkit may be asked for: 12.4.1
            fitting = fitting or {
                version.text: version
                for version in known
                if all(one.allows(version) for one in constraints)
                and all(accepts(build, version) for build in builds)
            }
        newest = sorted(fitting.values())
        return [Choice("cuda", version.text, version) for version in reversed(newest)]

    def pythons(self, chosen: Chosen, constraints: Constraints) -> list[Choice]:
        """Return the Pythons that every chosen release has wheels for, newest first.

        Free-threaded Pythons come last. Where nothing is published, and nobody asks for a Python,
        the only choice is a stack without one.
        """
        ranges = [c.release for c in chosen.values() if c.release]
        stated = [set(one.python) | set(one.python_aarch64) for one in ranges if one.python]
        if stated:
            texts = set.intersection(*stated)
        elif any(any(one.python_range) for one in ranges) or constraints:
            texts = {f"3.{minor}" for minor in range(8, _LATEST_PYTHON)} & self._known_pythons
        else:
            return [Choice("python", "")]
        versions = [parse_version("python", text) for text in texts]
        allowed = [v for v in versions if all(one.allows(v) for one in constraints)]
        for low, high in (one.python_range for one in ranges):
            first = parse_version("python", low) if low else None
            last = parse_version("python", high) if high else None
            allowed = [v for v in allowed if not (first and v < first)]
            allowed = [v for v in allowed if not (last and v > last)]
        ordered = sorted(allowed, key=lambda v: (not v.text.endswith("t"), v.key), reverse=True)
        return [Choice("python", version.text, version) for version in ordered]

    @property
    def _known_pythons(self) -> set[str]:
        tables = (self._facts.framework(name) for name in self._facts.framework_names)
        releases = [release for table in tables if table for release in table.releases[-5:]]
        named = {
            text for one in releases for text in (*one.python, *filter(None, one.python_range))
        }
        return {text for text in named if not text.endswith("t")} | {"3.8", "3.9", "3.10", "3.11"}

    def library(self, name: str, chosen: Chosen, constraints: Constraints) -> list[Choice]:
        """Return versions of cuDNN, NCCL or another component: the pinned one first.

        The pins of builds chosen so far come first. With ``constraints`` None there is only the
        pinned version, else a stack without the part.
        """
        pins = (
            pin
            for choice in chosen.values()
            for of in (choice.build, choice.release)
            if of and (pin := of.pins.get(name)) and not pin.optional
        )
        pinned = [
            parse_version(name, format_parts(pin.floor.at(3)))
            for pin in pins
            if pin.floor and (pin.exact or constraints)
        ]
        known = sorted(known_versions(self._facts, name), reverse=True) if constraints else []
        named = _named_versions(name, constraints)
        versions = {version.text: version for version in (*pinned, *known, *named)}
        allowed = [v for v in versions.values() if all(one.allows(v) for one in constraints)]
        if not allowed and not constraints:
            return [Choice(name, "")]
        return [Choice(name, version.text, version) for version in allowed]

    def package(self, name: str, chosen: Chosen, constraints: Constraints) -> list[Choice]:
        """Return versions of a package of the index, newest first.

        A package that is compiled where it is installed states the GPU code that its build script
        makes for the chosen CUDA, then the code of the pools' GPUs alone. A package without GPU
        code runs on every target: where no release is named, the stack does not have it.
        """
        named = _named_versions(name, constraints)
        versions = {version.text: version for version in (*named, *self._versions(name))}
        newest = sorted(versions.values(), key=lambda v: v.key, reverse=True)
        found = [
            choice
            for version in newest
            for text in self._builds_of(name, version, chosen)
            if (choice := Choice(name, text, parse_version(name, text.partition("[")[0])))
            and choice.version
            and all(one.allows(choice.version) for one in constraints)
        ]
        return found or ([Choice(name, "")] if self.is_without_code(name) else [])

    def is_without_code(self, name: str) -> bool:
        """Tell whether the facts say that no release of a package needs code for a GPU."""
        return self._facts.packages.carries(name) in NO_GPU_CODE

    def _versions(self, name: str) -> list[Version]:
        if name not in self._packages:
            facts, recorded = self._facts, self._facts.recorded_name(name, None)
            found = [v.public for v in facts.recorded_versions(recorded)]
            for major in () if recorded in facts.recorded else (12, 13):
                other = facts.recorded_name(name, (major,))
                found += [v.public for v in facts.recorded_versions(other)]
            for one in facts.statements(recorded):
                named = _NAMED_VERSION.findall(one.versions)
                found += [text for text in named if _meets(one.versions, text)]
            self._packages[name] = [parse_version(name, text) for text in dict.fromkeys(found)]
        return self._packages[name]

    def _builds_of(self, name: str, version: Version, chosen: Chosen) -> list[str]:
        """Return how a stack may state a release of a package, the likeliest first."""
        if version.local:
            return [version.text]
        release = self._known_release(name, version)
        builds = [choice.build for choice in chosen.values() if choice.build]
        labels = [b.label for b in builds if b.label and b.label in release.labels]
        labelled = [f"{version}+{label}" for label in labels if self._is_offered(label)]
        if not release.measured and any(s.compiled == "install" for s in release.statements):
            return [*labelled, *self._compiled(version, release.statements, chosen)]
        cuda, facts = chosen.get("cuda"), self._facts
        # Each CUDA major may have a package of its own: cupy-cuda12x.
        of_cuda = facts.recorded_name(name, None) not in facts.recorded
        if (
            cuda
            and cuda.version
            and of_cuda
            and not (release.measured or self.is_without_code(name))
        ):
            labelled.append(f"{version}+cu{cuda.version.major}")
        plain_first = all(build.default for build in builds)
        return [version.text, *labelled] if plain_first else [*labelled, version.text]

    def _known_release(self, name: str, version: Version) -> _KnownRelease:
        """Return what the facts say about a release of a package, read once."""
        key = (name, version.text)
        if key not in self._releases:
            recorded = self._facts.recorded_name(name, None)
            statements = [s for s in self._facts.statements(recorded) if covers_release(s, version)]
            stated = {label for s in statements for wheels in s.wheels for label in wheels.labels}
            parts = [record.version.partition("+") for record in self._facts.records(recorded)]
            built = [label for public, _, label in parts if public == version.public]
            labels = frozenset(stated.union(filter(None, built)))
            self._releases[key] = _KnownRelease(tuple(statements), bool(built), labels)
        return self._releases[key]

    def _compiled(
        self, version: Version, said: Sequence[Statement], chosen: Chosen
    ) -> Iterator[str]:
        cuda = chosen.get("cuda")
        own = {f"sm_{g.capability[0]}{g.capability[1]}" for p in self._pools if (g := p.gpu)}
        made = [
            code.name
            for one in said
            for build in one.builds
            if build.cuda is None
            or (cuda and cuda.version and _meets(build.cuda, cuda.version.public))
            for code in build.code
        ]
        for codes in dict.fromkeys((tuple(dict.fromkeys(made)), tuple(sorted(own)))):
            if codes:
                yield f"{version}[{'+'.join(codes)}]"

    def versions(self, name: str) -> list[str]:
        """Return the releases of a package that the facts know, newest first, without labels."""
        newest = sorted(self._versions(name), key=lambda v: v.key, reverse=True)
        return list(dict.fromkeys(version.public for version in newest))

    def clashes(self, choice: Choice, chosen: Chosen) -> bool:
        """Tell whether published pins or requirements already rule a choice out.

        The evaluation knows more and has the last word; this only spares it hopeless stacks.
        """
        ours = self._required(choice)
        for name, other in chosen.items():
            if not (choice.version and other.version):
                continue
            spec = ours.get(name) or ""
            theirs = self._required(other).get(choice.name) or ""
            if spec and not _meets(spec, other.version.public):
                return True
            if theirs and not _meets(theirs, choice.version.public):
                return True
        return False

    def _required(self, choice: Choice) -> dict[str, str]:
        key = (choice.name, choice.text)
        if key not in self._requires:
            found: dict[str, str] = {}
            if choice.release:
                pins = choice.release.pins.values()
                found = {p.component: p.spec for p in pins if self.has_builds(p.component)}
            elif choice.version:
                public = choice.version.public
                records = self._facts.records(self._facts.recorded_name(choice.name, None))
                texts = next((r.requires for r in records if r.version == public), ())
                named = _requirements(t for t in texts if ";" not in t)
                found = {name: spec for name, spec in named.items() if self.has_builds(name)}
            self._requires[key] = found
        return self._requires[key]


def _named_versions(name: str, constraints: Constraints) -> list[Version]:
    """Return versions that constraints name, which the facts may not know."""
    found = []
    for constraint in constraints:
        for clause in constraint.clauses:
            if clause.operator in ("==", ">=", "<=", "~="):
                try:
                    found.append(parse_version(name, clause.version.text))
                except BadInput:  # a major alone is no version
                    continue
    return found


def _requirements(texts: Iterable[str]) -> dict[str, str]:
    """Return the versions that requirements (PEP 508) ask for, by canonical name."""
    from packaging.requirements import InvalidRequirement, Requirement

    found: dict[str, str] = {}
    for text in texts:
        try:
            asked = Requirement(text)
        except InvalidRequirement:
            continue
        found[canonical_key(asked.name)] = str(asked.specifier)
    return found


def _meets(spec: str, version: str) -> bool:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import InvalidVersion
    from packaging.version import Version as Pep440

    try:
        return SpecifierSet(spec).contains(Pep440(version), prereleases=True)
    except (InvalidSpecifier, InvalidVersion):
        return True


def parse_wants(texts: Iterable[str]) -> dict[str, Constraint | None]:
    """Read wanted parts: ``torch>=2.6,<2.9``, ``flash-attn``; commas separate parts as well.

    The result maps canonical names to constraints; None means any version.
    """
    bodies: dict[str, str] = {}
    for text in texts:
        name = ""
        for item in filter(None, (part.strip() for part in text.split(","))):
            match = _NAME.match(item)
            if item[0] in "<>=!~" or (name and item[0].isdigit()):
                if not name:
                    what, hint = f"{item!r} constrains nothing", "for example torch>=2.6,<2.9"
                    raise BadInput(what, field="want", value=text, hint=hint)
                bodies[name] = ",".join(filter(None, (bodies[name], item)))
                continue
            if not match:
                what = f"{item!r} does not begin with a name"
                raise BadInput(what, field="want", value=text, hint="for example torch>=2.6")
            name = match[1]
            if canonical_key(name) in map(canonical_key, bodies):
                what = f"names {name} twice"
                raise BadInput(what, field="want", value=text, hint="join the constraints: a>=1,<2")
            bodies[name] = item[match.end() :].strip()
    return read_wants(bodies)


def read_wants(bodies: Mapping[str, str]) -> dict[str, Constraint | None]:
    """Read wanted parts by name: ``{"torch": ">=2.6", "flash-attn": "*"}``."""
    found: dict[str, Constraint | None] = {}
    for key, text in bodies.items():
        name = canonical_key(key)
        if name in found:
            raise BadInput(f"names {name} twice", field=f"want.{key}", hint="state it once")
        stated = text.strip()
        try:
            resolve_component(name)  # refuses a misspelt one, as a stack does
            if name == "driver":
                what = "the driver belongs to the pool, not to the stack"
                raise BadInput(what, hint="choose a target or pool with this value")
            found[name] = parse_constraint(name, stated) if stated not in ("", "*") else None
        except BadInput as error:
            error.field = f"want.{key}"
            raise
    return found
