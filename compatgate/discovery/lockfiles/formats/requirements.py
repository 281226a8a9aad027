"""requirements.txt: as pip-compile, ``uv export`` and people write it."""

from __future__ import annotations

import re
from typing import NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from compatgate.discovery.lockfiles import build_label
from compatgate.discovery.lockfiles.formats.requirement_lines import (
    FIRST_INDEX,
    INDEX,
    MORE_INDEXES,
    Line,
    Lines,
)
from compatgate.discovery.lockfiles.interface import Contents, LockFile, Package, Selection
from compatgate.discovery.lockfiles.platform import Markers, Platform
from compatgate.discovery.lockfiles.text import MOST_PACKAGES, refuse_variable
from compatgate.discovery.lockfiles.wheels import Wheel, fitting_wheels
from compatgate.errors import BadInput

_NAME = re.compile(r".*(requirements|constraints|reqs).*\.(txt|in|pip|lock)", re.IGNORECASE)
_LONGEST = 20_000
"""Characters of a requirement without its hashes."""
_HASH = re.compile(r"--hash(?:\s*=\s*|\s+)sha256:([0-9a-fA-F]{64})\b")
_PER_REQUIREMENT = re.compile(r"\s--(?:hash|config-settings?|global-option)(?:\s*=\s*|\s+)\S+")
_LIKE = re.compile(r"\s*(?:[A-Za-z0-9][\w.\-]*\s*(?:\[[^\]]*\])?\s*(?:[=<>!~@;\\#(]|$)|#|--?\w|$)")
_PIN = re.compile(r"^\s*[A-Za-z0-9][\w.\-]*\s*(?:\[[^\]]*\])?\s*(?:[=<>!~]=|@)", re.MULTILINE)
_EGG = re.compile(r"#(?:.*&)?egg=([A-Za-z0-9_.\-]+)")
_FILE = re.compile(r"(?:[a-z+]+://|\.{0,2}/|[\w./\\\-+]+\.(?:whl|tar\.gz|zip)\b).*", re.IGNORECASE)


class _Asked(NamedTuple):
    """A requirement, as far as it can be read from one line."""

    name: str
    version: str | None = None
    specifier: str = ""
    url: str = ""
    marker: str = ""


class RequirementsTxt:
    """pip's requirements file."""

    name = "requirements.txt"

    def recognises(self, file: LockFile) -> bool:
        """A telling name, or lines that all look like requirements."""
        if _NAME.fullmatch(file.name):
            return True
        lines = [line for line in file.text.splitlines() if line.strip()][:200]
        return (
            file.may_end(".txt", ".in", ".pip")
            and all(map(_LIKE.match, lines))
            and ("." in file.name or bool(_PIN.search(file.text)))
        )

    def read(self, file: LockFile, platform: Platform, selection: Selection) -> Contents:
        """Requirements whose markers hold, with versions from constraints where they have none."""
        markers = Markers(platform, file=file.name)
        lines = Lines(file)
        packages: list[Package] = []
        indexes: list[str] = []
        default, more = "", list[str]()
        constraints: dict[str, list[Package]] = {}
        for line in lines:
            if line.option in INDEX:
                indexes.append(refuse_variable(line.text, line.origin))
                if line.option in FIRST_INDEX:
                    default = indexes[-1]
                elif line.option in MORE_INDEXES:
                    more.append(indexes[-1])
                continue
            package = _package(line, markers)
            if package is None:
                continue
            if line.constraint:
                constraints.setdefault(canonicalize_name(package.name), []).append(package)
            else:
                packages.append(package)
            if len(packages) > MOST_PACKAGES:
                raise BadInput(f"has more than {MOST_PACKAGES} requirements", field=file.name)
        if not packages:
            packages = [package for bound in constraints.values() for package in bound]
        else:
            packages = [_constrained(package, constraints) for package in packages]
        asked = tuple(dict.fromkeys((default, *more)))
        return Contents(tuple(packages), tuple(indexes), tuple(lines.unread), asked=asked)


def _package(line: Line, markers: Markers) -> Package | None:
    """The package of a line; None when its marker does not hold, or it is a folder."""
    text = refuse_variable(_PER_REQUIREMENT.sub("", line.text).strip(), line.origin)
    if len(text) > _LONGEST:
        raise BadInput(f"is longer than {_LONGEST} characters", field=line.origin)
    asked = _asked(text, line)
    if asked is None:
        return None
    holds = markers.decide(asked.marker)
    if holds is False:
        return None
    digests = tuple(dict.fromkeys(found.lower() for found in _HASH.findall(line.text)))
    return Package(
        asked.name,
        line.origin,
        version=asked.version,
        specifier=asked.specifier,
        sources=(asked.url,) if asked.url else (),
        when="" if holds else asked.marker,
        wheels=_wheels(asked.url, digests, markers.platform),
        digests=digests,
    )


def _wheels(url: str, digests: tuple[str, ...], platform: Platform) -> tuple[Wheel, ...]:
    """Return the wheel of a requirement that names its URL, with a digest where one is stated."""
    address, _, fragment = url.partition("#")
    stated = fragment.removeprefix("sha256=") if fragment.startswith("sha256=") else ""
    digest = stated or (digests[0] if len(digests) == 1 else "")
    return tuple(fitting_wheels([{"url": address, "hash": digest}], platform))


def _asked(text: str, line: Line) -> _Asked | None:
    try:
        requirement = Requirement(text)
    except (InvalidRequirement, RecursionError, ValueError):
        return _file(text, line)
    marker = str(requirement.marker or "")
    if requirement.url:
        named = build_label.file_version(requirement.url)
        version = named[1] if named else None
        asked = "" if named else requirement.url
        return _Asked(requirement.name, version, asked, requirement.url, marker)
    version = _pin(requirement.specifier)
    asked = "" if version else str(requirement.specifier)
    return _Asked(requirement.name, version, asked, "", marker)


def _file(text: str, line: Line) -> _Asked | None:
    """A wheel or archive by its URL or path; a folder or repository says no component."""
    url, _, marker = text.partition(" ;")
    named = build_label.file_version(url.strip())
    if named:
        return _Asked(named[0], named[1], "", url.strip(), marker)
    if egg := _EGG.search(url):
        return _Asked(egg[1], None, url.strip(), url.strip(), marker)
    if line.option or _FILE.fullmatch(url.strip()):
        return None
    hint = "write name==version, or an option"
    raise BadInput(f"{text[:100]!r} is not a requirement", field=line.origin, hint=hint)


def _pin(specifier: SpecifierSet) -> str | None:
    """The one version that ``==`` without a wildcard, or ``===``, leaves."""
    for clause in specifier:
        if clause.operator in ("==", "===") and not clause.version.endswith(".*"):
            return clause.version
    return None


def _constrained(package: Package, constraints: dict[str, list[Package]]) -> Package:
    """The package with the version that a constraints file pins."""
    if package.version is not None:
        return package
    for bound in constraints.get(canonicalize_name(package.name), ()):
        if bound.version is not None and not bound.when:
            return Package(
                package.name,
                bound.origin,
                version=bound.version,
                sources=bound.sources,
                when=package.when,
                wheels=bound.wheels,
                digests=bound.digests,
            )
    return package
