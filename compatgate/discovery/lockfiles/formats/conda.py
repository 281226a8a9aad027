"""Read the files of conda and pixi: environment.yml, explicit lists, conda-lock.yml, pixi.lock.

* environment.yml names the packages of an environment, and those that pip adds. Source:
  conda's "Creating an environment file manually", and its match specifications
  (https://docs.conda.io/projects/conda-build/en/stable/resources/package-spec.html).
* An explicit list is ``@EXPLICIT`` and one URL a line, as ``conda list --explicit`` writes it.
  Source: conda's "Identical conda environments", and conda-lock's explicit rendering.
* conda-lock.yml is one list of packages for all platforms. Source: conda-lock's unified format,
  version 1 (https://conda.github.io/conda-lock/).
* pixi.lock has environments, each with its packages for each platform. Source:
  https://pixi.sh/latest/workspace/lockfile/ and the files that pixi writes (versions 4 to 7). Since
  version 7, a platform can have a name of its own, like ``workstation``.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec.structs import replace

from compatgate.discovery.lockfiles import stack_components, wheel_builds
from compatgate.discovery.lockfiles.formats.requirements import read_requirements
from compatgate.discovery.lockfiles.interface import (
    ListedPackage,
    LockContents,
    LockFile,
    LockFormat,
)
from compatgate.discovery.lockfiles.platform import Platform
from compatgate.discovery.lockfiles.text import (
    MAX_PACKAGES,
    read_tables,
    read_text,
    read_yaml,
    refuse_variable,
)
from compatgate.discovery.lockfiles.wheel_builds import select_wheels
from compatgate.errors import BadInput, InconclusiveInput

_YAML = (".yml", ".yaml")
_MAX_DEPENDENCIES = 5_000
"""Dependencies that an environment states."""
_ENVIRONMENT_NAME = re.compile(r"(.*environment.*|conda.*)\.ya?ml", re.IGNORECASE)
_ENVIRONMENT_SHAPE = re.compile(r"^dependencies:\s*$", re.MULTILINE)


def _read_environment(file: LockFile, platform: Platform) -> LockContents:
    document = read_yaml(file.text, file.name)
    stated = document.get("dependencies") if isinstance(document, dict) else None
    if not isinstance(stated, list):
        hint = "a conda environment has a list of dependencies"
        raise BadInput("is not a conda environment", field=file.name, hint=hint)
    if len(stated) > _MAX_DEPENDENCIES:
        raise BadInput(f"has more than {_MAX_DEPENDENCIES} dependencies", field=file.name)
    packages: list[ListedPackage] = []
    pip: list[str] = []
    lines: dict[str, int] = {}
    for number, line in enumerate(file.text.splitlines(), 1):
        if (entry := line.split(" #")[0].strip()).startswith("-"):
            lines.setdefault(entry[1:].strip().strip("\"'"), number)
    for item in stated:
        if isinstance(item, dict):
            pip += _pip_entries(item, file)
            continue
        if not isinstance(item, str):
            raise BadInput("a dependency must be text", field=file.name, value=item)
        where = f"{file.name}:{lines[item]}" if item in lines else file.name
        package = stack_components.parse_conda_spec(refuse_variable(item, where), where)
        if package is None:
            raise BadInput(f"{item[:100]!r} is not a conda dependency", field=where)
        packages.append(package)
    if not pip:
        return LockContents(tuple(packages))
    inner = LockFile(f"{file.name} (pip)", "\n".join(pip), file.beside)
    added = read_requirements(inner, platform)
    packages += (replace(p, origin=f"{file.name}: pip {p.name}") for p in added.packages)
    return LockContents(tuple(packages), added.indexes, added.open)


def _pip_entries(item: dict[str, Any], file: LockFile) -> list[str]:
    lines = item.get("pip")
    if "pip" in item and not lines:
        return []
    if set(item) != {"pip"} or not isinstance(lines, list):
        raise BadInput(
            "only pip may have a nested list of dependencies", field=file.name, value=item
        )
    if not all(isinstance(line, str) for line in lines):
        raise BadInput("pip's dependencies must be text", field=file.name)
    return [line.replace("\n", " ") for line in lines]


_EXPLICIT_MARK = re.compile(r"^@EXPLICIT\s*$", re.MULTILINE)
_EXPLICIT_PIP = "# pip "


def _read_explicit(file: LockFile, platform: Platform) -> LockContents:
    """Return every package if the list is for the platform."""
    packages: list[ListedPackage] = []
    subdirs: set[str] = set()
    pip: list[str] = []
    for number, raw in enumerate(file.text.splitlines(), 1):
        line = refuse_variable(raw.strip(), f"{file.name}:{number}")
        is_pip = line.startswith(_EXPLICIT_PIP)
        pip.append(line.removeprefix(_EXPLICIT_PIP).partition(" --hash")[0] if is_pip else "")
        if not line or line.startswith("#") or line == "@EXPLICIT":
            continue
        package = stack_components.parse_conda_url(line, f"{file.name}:{number}")
        if package is None or not stack_components.conda_subdir(line):
            hint = "after @EXPLICIT each line is the URL of a package"
            raise BadInput("is not the URL of a package", field=f"{file.name}:{number}", hint=hint)
        packages.append(package)
        subdirs.add(stack_components.conda_subdir(line))
        if len(packages) > MAX_PACKAGES:
            raise BadInput(f"has more than {MAX_PACKAGES} packages", field=file.name)
    subdirs.discard("noarch")
    if subdirs and platform.conda not in subdirs:
        problem = f"is for {', '.join(sorted(subdirs))}, the target is {platform.conda}"
        raise InconclusiveInput(problem, field=file.name, hint=f"list one for {platform.conda}")
    added = read_requirements(LockFile(file.name, "\n".join(pip)), platform)
    return LockContents((*packages, *added.packages))


_LOCK_SHAPE = (re.compile(r"^metadata:", re.MULTILINE), re.compile(r"^package:", re.MULTILINE))
_LOCK_NAME = re.compile(r".*conda-lock\.ya?ml", re.IGNORECASE)


def _read_conda_lock(file: LockFile, platform: Platform) -> LockContents:
    """Return packages of the main category, and the optional ones of others."""
    document = read_yaml(file.text, file.name)
    if not isinstance(document, dict) or "package" not in document:
        raise BadInput("is not a conda-lock file", field=file.name)
    if str(document.get("version", "1")) != "1":
        problem = f"has version {document['version']!r} of conda-lock's format"
        raise BadInput(problem, field=file.name, hint="use version 1")
    entries = read_tables(document["package"], "package", file.name)
    own = [e for e in entries if e.get("platform") in (platform.conda, "noarch")]
    if entries and not own:
        have = ", ".join(sorted({str(e.get("platform")) for e in entries}))
        problem = f"has no packages for {platform.conda}, only for {have}"
        raise InconclusiveInput(problem, field=file.name, hint=f"lock for {platform.conda} as well")
    return LockContents(tuple(_locked_package(entry, file.name, platform) for entry in own))


def _locked_package(entry: dict[str, Any], file: str, platform: Platform) -> ListedPackage:
    name = read_text(entry, "name", file)
    url = read_text(entry, "url", file)
    category = read_text(entry, "category", file, "main")
    is_pip = entry.get("manager") == "pip"
    files = [{"url": url, "hashes": entry.get("hash")}] if is_pip else []
    stated = None if is_pip else stack_components.parse_conda_url(url, file)
    package = stated or ListedPackage(name, "", ecosystem="pypi" if is_pip else "conda")
    return replace(
        package,
        name=name,
        origin=f"{file}: {name}",
        version=read_text(entry, "version", file) or None,
        sources=(url,) if url else (),
        wheels=tuple(select_wheels(files, platform)),
        build=read_text(entry, "build", file, package.build),
        selection="" if category == "main" else f"category {category}",
    )


_PIXI_VERSIONS = ("4", "5", "6", "7")
_PIXI_DEFAULT = "default"
_PIXI_SOURCE = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(?:\[[0-9a-f]+\])? @ .+")
"""A package that is built from source: ``trainer[87dc0b8a] @ packages/trainer``."""
_PIXI_SHAPE = (re.compile(r"^environments:\s*$", re.M), re.compile(r"^packages:\s*$", re.M))


def _read_pixi(file: LockFile, platform: Platform) -> LockContents:
    """Return packages of the default environment; those of others are optional."""
    document = read_yaml(file.text, file.name)
    version = str(document.get("version")) if isinstance(document, dict) else ""
    environments = document.get("environments") if isinstance(document, dict) else None
    if version not in _PIXI_VERSIONS or not isinstance(environments, dict):
        hint = f"use one of the versions {', '.join(_PIXI_VERSIONS)}"
        raise BadInput("is not a pixi lock of a known version", field=file.name, hint=hint)
    # Python's packages have their name and version here, not in the URL
    known = {
        str(p.get("pypi") or p.get("conda") or p.get("source") or p.get("url")): p
        for p in read_tables(document.get("packages"), "packages", file.name)
    }
    named = [
        read_text(one, "name", file.name)
        for one in read_tables(document.get("platforms"), "platforms", file.name)
        if read_text(one, "subdir", file.name, read_text(one, "name", file.name)) == platform.conda
    ]
    places = tuple(named) or (platform.conda,)
    found: list[ListedPackage] = []
    platforms: set[str] = set()
    for name, environment in environments.items():
        listed = environment.get("packages") if isinstance(environment, dict) else None
        if not isinstance(listed, dict):
            raise BadInput("must have packages", field=f"{file.name}: {name}")
        platforms |= {str(p) for p in listed if listed[p]}
        outside = "" if name == _PIXI_DEFAULT else f"environment {name}"
        for item, when in _pixi_items(listed, places, str(name), file.name):
            package = _pixi_package(item, file.name, known, platform, outside)
            if package:
                found.append(replace(package, when=when))
    if platforms and not found:
        problem = f"has no packages for {platform.conda}, only for {', '.join(sorted(platforms))}"
        raise InconclusiveInput(
            problem, field=file.name, hint=f"add {platform.conda} and lock again"
        )
    return LockContents(tuple(found))


def _pixi_items(
    listed: dict[str, Any], places: tuple[str, ...], where: str, file: str
) -> list[tuple[dict[str, Any], str]]:
    """Return the packages of the places; what only some of them have is undecided, in words."""
    items: dict[str, tuple[dict[str, Any], list[str]]] = {}
    have = [place for place in places if listed.get(place) is not None]
    for place in have:
        for item in read_tables(listed[place], where, file):
            items.setdefault(repr(item), (item, []))[1].append(place)
    return [
        (item, "" if len(names) == len(have) else f"platform is {' or '.join(names)}")
        for item, names in items.values()
    ]


def _pixi_package(
    item: dict[str, Any],
    file: str,
    known: dict[str, dict[str, Any]],
    platform: Platform,
    selection: str,
) -> ListedPackage | None:
    conda, pypi, source = item.get("conda"), item.get("pypi"), item.get("source")
    if isinstance(conda, str):
        package = stack_components.parse_conda_url(refuse_variable(conda, file), file)
        return package and replace(package, sources=(conda,), selection=selection)
    if isinstance(pypi, str):
        described = known.get(refuse_variable(pypi, file), {})
        named = wheel_builds.parse_file_name(pypi) or ("", None)
        name = str(described.get("name") or named[0])
        version = described.get("version") or named[1]
        files = [{"url": pypi, "hash": described.get("sha256")}]
        return ListedPackage(
            name,
            f"{file}: {name}",
            version=None if version is None else str(version),
            sources=(pypi,),
            selection=selection,
            wheels=tuple(select_wheels(files, platform)),
            index=read_text(described, "index", file),
        )
    match = _PIXI_SOURCE.fullmatch(source) if isinstance(source, str) else None
    if match is None:
        return None
    described = known.get(match[0], {})
    return ListedPackage(
        match["name"],
        f"{file}: {match['name']}",
        version=read_text(described, "version", file) or None,
        build=read_text(described, "build", file),
        ecosystem="conda",
        selection=selection,
    )


PIXI = LockFormat(
    "pixi.lock", _read_pixi, _PIXI_SHAPE, (".lock",), re.compile(r"pixi\.lock", re.IGNORECASE)
)
CONDA_EXPLICIT = LockFormat("conda explicit list", _read_explicit, (_EXPLICIT_MARK,))
CONDA_LOCK = LockFormat("conda-lock.yml", _read_conda_lock, _LOCK_SHAPE, _YAML, _LOCK_NAME)
CONDA_ENVIRONMENT = LockFormat(
    "environment.yml", _read_environment, (_ENVIRONMENT_SHAPE,), _YAML, _ENVIRONMENT_NAME
)
