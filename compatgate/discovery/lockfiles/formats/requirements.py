"""Read requirements.txt, as pip-compile, ``uv export`` and people write it.

`RequirementLines` joins continuations and follows includes.

Source: pip's "Requirements File Format"
(https://pip.pypa.io/en/stable/reference/requirements-file-format/).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from compatgate.discovery.lockfiles import wheel_builds
from compatgate.discovery.lockfiles.interface import (
    ListedPackage,
    LockContents,
    LockFile,
    LockFormat,
)
from compatgate.discovery.lockfiles.platform import Markers, Platform
from compatgate.discovery.lockfiles.text import decode_text, refuse_variable
from compatgate.discovery.lockfiles.wheel_builds import select_wheels
from compatgate.errors import BadInput

_MAX_INCLUDE_LEVELS = 8
_MAX_FILES = 32
_MAX_REQUIREMENTS = 5_000
"""Requirements and options of a file and its includes."""
_MAX_LINES = 1_000_000
"""Lines of a file; each hash of a wheel has one."""
_COMMENT = re.compile(r"(^|\s)#.*$")
_OPTION = re.compile(
    r"(?P<name>--?[A-Za-z][A-Za-z\-]*)(?:\s*=\s*|\s+|(?<=^-[rcife])|$)(?P<value>.*)"
)
FIRST_INDEX = ("-i", "--index-url")
MORE_INDEXES = ("--extra-index-url",)
INDEX = (*FIRST_INDEX, *MORE_INDEXES, "-f", "--find-links")
_REQUIREMENTS = ("-r", "--requirement")
_CONSTRAINTS = ("-c", "--constraint")
_IGNORED_OPTIONS = frozenset(
    (
        "--no-index",
        "--pre",
        "--prefer-binary",
        "--require-hashes",
        "--no-binary",
        "--only-binary",
        "--trusted-host",
        "--use-feature",
        "--no-build-isolation",
        "--no-deps",
    )
)


class RequirementLine(Struct, frozen=True):
    """One logical line, or its option (``-i``, ``-e``), and whether it is in a constraints file."""

    origin: str
    text: str
    option: str = ""
    constraint: bool = False


class RequirementLines:
    """The lines of a requirements file and its includes; `unread` names unread includes."""

    def __init__(self, file: LockFile) -> None:
        self._file = file
        self._seen: set[tuple[str, bool]] = set()
        self.unread: list[str] = []

    def __iter__(self) -> Iterator[RequirementLine]:
        """Yield every line, with those of includes in their place."""
        return self._read(self._file.name, self._file.text, "", constraint=False, depth=0)

    def _read(
        self, name: str, text: str, folder: str, *, constraint: bool, depth: int
    ) -> Iterator[RequirementLine]:
        for number, joined in _join_lines(text):
            origin = f"{name}:{number}"
            if not joined.startswith("-"):
                yield RequirementLine(origin, joined, constraint=constraint)
                continue
            match = _OPTION.fullmatch(joined)
            option = match["name"] if match else joined.split()[0]
            value = match["value"].strip().strip("\"'") if match else ""
            if option in _REQUIREMENTS + _CONSTRAINTS:
                inner = constraint or option in _CONSTRAINTS
                yield from self._include(origin, value, folder, constraint=inner, depth=depth + 1)
            elif option in INDEX or option in ("-e", "--editable"):
                yield RequirementLine(origin, value, option, constraint)
            elif option not in _IGNORED_OPTIONS:
                hint = "write one requirement or option a line"
                raise BadInput(f"{option!r} is not an option", field=origin, hint=hint)

    def _include(
        self, origin: str, value: str, folder: str, *, constraint: bool, depth: int
    ) -> Iterator[RequirementLine]:
        path = posixpath.normpath(posixpath.join(folder, value.replace("\\", "/")))
        if "://" in value or self._file.beside is None:
            self.unread.append(f"{value!r}, included at {origin}, was not read")
            return
        if path.startswith(("/", "..")) or ":" in path or "\0" in path or not value:
            problem = f"{value!r} is outside of the folder of {self._file.name}"
            raise BadInput(
                problem, field=origin, hint="copy the file there, or compile a single file"
            )
        if (path, constraint) in self._seen:
            return
        self._seen.add((path, constraint))
        if depth > _MAX_INCLUDE_LEVELS or len(self._seen) > _MAX_FILES:
            raise BadInput("includes too many files", field=origin)
        try:
            data = self._file.beside(path)
        except OSError as error:
            raise BadInput(f"{value!r} cannot be read: {error.strerror}", field=origin) from None
        text = decode_text(data, path) if data.strip() else ""
        folder = posixpath.dirname(path)
        yield from self._read(path, text, folder, constraint=constraint, depth=depth)


def _join_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield number and text of each logical line without comments and empty lines."""
    pending: list[str] = []
    first = 1
    for number, raw in enumerate([*text.splitlines(), ""], 1):
        if number > _MAX_LINES + 1:
            raise BadInput("has too many lines", field=str(number - 1))
        if not pending:
            first = number
        comment = raw.lstrip().startswith("#")
        if raw.rstrip().endswith("\\") and not comment:
            pending.append(raw.rstrip()[:-1])
            continue
        if not comment:
            pending.append(raw)
        if joined := _COMMENT.sub("", "".join(pending)).strip():
            yield first, joined
        pending = []


_NAME = re.compile(r".*(requirements|constraints|reqs).*\.(txt|in|pip|lock)", re.IGNORECASE)
_LONGEST = 20_000
"""Characters of a requirement without its hashes."""
_HASH = re.compile(r"--hash(?:\s*=\s*|\s+)sha256:([0-9a-fA-F]{64})\b")
_PER_REQUIREMENT = re.compile(r"\s--(?:hash|config-settings?|global-option)(?:\s*=\s*|\s+)\S+")
_REQUIREMENT_LIKE = re.compile(
    r"\s*(?:[A-Za-z0-9][\w.\-]*\s*(?:\[[^\]]*\])?\s*(?:[=<>!~@;\\#(]|$)|#|--?\w|$)"
)
_PIN = re.compile(r"^\s*[A-Za-z0-9][\w.\-]*\s*(?:\[[^\]]*\])?\s*(?:[=<>!~]=|@)", re.MULTILINE)
_EGG = re.compile(r"#(?:.*&)?egg=([A-Za-z0-9_.\-]+)")
_FILE = re.compile(r"(?:[a-z+]+://|\.{0,2}/|[\w./\\\-+]+\.(?:whl|tar\.gz|zip)\b).*", re.IGNORECASE)


class _Requirement(NamedTuple):
    name: str
    version: str | None = None
    specifier: str = ""
    url: str = ""
    marker: str = ""


def read_requirements(file: LockFile, platform: Platform) -> LockContents:
    """Return requirements whose markers hold, with versions from constraints."""
    markers = Markers(platform, file=file.name)
    lines = RequirementLines(file)
    packages: list[ListedPackage] = []
    indexes: list[str] = []
    default, more = "", list[str]()
    constraints: dict[str, list[ListedPackage]] = {}
    for number, line in enumerate(lines, 1):
        if number > _MAX_REQUIREMENTS:
            what = f"has more than {_MAX_REQUIREMENTS} requirements"
            raise BadInput(what, field=file.name)
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
    for place, package in enumerate(packages):
        if package.version is None:  # a constraints file may pin it
            bounds = constraints.get(canonicalize_name(package.name), ())
            pins = (bound for bound in bounds if bound.version is not None and not bound.when)
            if pin := next(pins, None):
                packages[place] = replace(pin, name=package.name, when=package.when)
    packages = packages or [package for bound in constraints.values() for package in bound]
    asked = tuple(dict.fromkeys((default, *more)))
    return LockContents(tuple(packages), tuple(indexes), tuple(lines.unread), asked=asked)


def _package(line: RequirementLine, markers: Markers) -> ListedPackage | None:
    """Return the package of a line; None for folders, and where the marker does not hold."""
    text = refuse_variable(_PER_REQUIREMENT.sub("", line.text).strip(), line.origin)
    if len(text) > _LONGEST:
        raise BadInput(f"is longer than {_LONGEST} characters", field=line.origin)
    asked = _requirement(text, line)
    if asked is None:
        return None
    holds = markers.decide(asked.marker)
    if holds is False:
        return None
    digests = tuple(dict.fromkeys(found.lower() for found in _HASH.findall(line.text)))
    address, _, fragment = asked.url.partition("#")
    stated = fragment.removeprefix("sha256=") if fragment.startswith("sha256=") else ""
    digest = stated or (digests[0] if len(digests) == 1 else "")
    return ListedPackage(
        asked.name,
        line.origin,
        version=asked.version,
        specifier=asked.specifier,
        sources=(asked.url,) if asked.url else (),
        when="" if holds else asked.marker,
        wheels=tuple(select_wheels([{"url": address, "hash": digest}], markers.platform)),
        digests=digests,
    )


def _requirement(text: str, line: RequirementLine) -> _Requirement | None:
    try:
        requirement = Requirement(text)
    except (InvalidRequirement, RecursionError, ValueError):
        return _file(text, line)
    marker = str(requirement.marker or "")
    if requirement.url:
        named = wheel_builds.parse_file_name(requirement.url)
        version = named[1] if named else None
        asked = "" if named else requirement.url
        return _Requirement(requirement.name, version, asked, requirement.url, marker)
    pins = (one.version for one in requirement.specifier if one.operator in ("==", "==="))
    version = next((pin for pin in pins if not pin.endswith(".*")), None)
    asked = "" if version else str(requirement.specifier)
    return _Requirement(requirement.name, version, asked, "", marker)


def _file(text: str, line: RequirementLine) -> _Requirement | None:
    """Return a wheel or archive by its URL or path; a folder or repository names no component."""
    url, _, marker = text.partition(" ;")
    named = wheel_builds.parse_file_name(url.strip())
    if named:
        return _Requirement(named[0], named[1], "", url.strip(), marker)
    if egg := _EGG.search(url):
        return _Requirement(egg[1], None, url.strip(), url.strip(), marker)
    if line.option or _FILE.fullmatch(url.strip()):
        return None
    hint = "write name==version, or an option"
    raise BadInput(f"{text[:100]!r} is not a requirement", field=line.origin, hint=hint)


class _RequirementsTxt(LockFormat, frozen=True):
    def recognises(self, file: LockFile) -> bool:
        """Look for a usual name, or lines that all look like requirements."""
        if _NAME.fullmatch(file.name):
            return True
        lines = [line for line in file.text.splitlines() if line.strip()][:200]
        return (
            file.may_end(".txt", ".in", ".pip")
            and all(map(_REQUIREMENT_LIKE.match, lines))
            and ("." in file.name or bool(_PIN.search(file.text)))
        )


REQUIREMENTS = _RequirementsTxt("requirements.txt", read_requirements, ())
