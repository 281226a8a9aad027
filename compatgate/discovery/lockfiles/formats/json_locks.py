"""Read locks in JSON: Pipfile.lock, and what ``pip inspect`` and ``pip install --report`` print.

* Pipfile.lock has a category of packages each for ``default``, ``develop`` and further names, with
  pins, markers and hashes. Source: https://pipenv.pypa.io/en/stable/pipfile.html and the files that
  Pipenv writes (format 6).
* An installation report lists what pip would install, with the URL and digest of each file. Source:
  https://pip.pypa.io/en/stable/reference/installation-report/ (version 1).
* An inspection lists what is installed. Source:
  https://pip.pypa.io/en/stable/reference/inspect-report/ (version 1). Both were written on one
  machine, which they describe by the variables of environment markers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from compatgate.core.request import CPU_NAMES
from compatgate.discovery.lockfiles.interface import (
    ListedPackage,
    LockContents,
    LockFile,
    Selection,
)
from compatgate.discovery.lockfiles.platform import Markers, Platform, find_python_conflict
from compatgate.discovery.lockfiles.text import (
    MAX_PACKAGES,
    read_tables,
    read_text,
    refuse_variable,
)
from compatgate.discovery.lockfiles.wheel_builds import select_wheels
from compatgate.errors import BadInput, InconclusiveInput, quote_error
from compatgate.strict_json import DECODE_ERRORS, DuplicateKeyError, decode_strict

_PIPFILE_SHAPE = (re.compile(r'"_meta"\s*:'), re.compile(r'"default"\s*:'))
_REPORT_SHAPE = re.compile(r'"pip_version"\s*:')
_INSTALL_SHAPE = re.compile(r'"install"\s*:\s*\[')
_INSTALLED_SHAPE = re.compile(r'"installed"\s*:\s*\[')
_PIN = re.compile(r"===?\s*([^\s,;*]+)")
_REQUIRED_NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")
_DEFAULT, _DEVELOP = "default", "develop"
_SYSTEMS = {"win32": "windows", "linux": "linux", "darwin": "macOS"}


class PipfileLock:
    """The lockfile of Pipenv's projects."""

    name = "Pipfile.lock"

    def recognises(self, file: LockFile) -> bool:
        """Look for Pipenv's name, or its metadata and default category."""
        return file.name.lower() == "pipfile.lock" or (
            file.may_end(".lock", ".json") and all(s.search(file.text) for s in _PIPFILE_SHAPE)
        )

    def read(self, file: LockFile, platform: Platform, selection: Selection) -> LockContents:
        """Return packages of the default category; those of others need to be selected."""
        document = read_object(file)
        meta = read_table(document.get("_meta"), "_meta", file.name)
        requires = read_table(meta.get("requires"), "_meta.requires", file.name)
        python = read_text(requires, "python_version", file.name)
        wanted = f"=={python}.*" if python else ""
        markers = Markers(platform, file=file.name, requires_python=wanted)
        sources = read_tables(meta.get("sources"), "_meta.sources", file.name)
        indexes = {
            read_text(one, "name", file.name): read_text(one, "url", file.name) for one in sources
        }
        chosen = {_DEFAULT, *selection.groups, *selection.extras}
        if selection.groups & {"dev", "dev-packages"}:
            chosen.add(_DEVELOP)
        packages = []
        for category, listed in document.items():
            if category == "_meta":
                continue
            outside = "" if category in chosen else f"group {category}"
            for name, entry in _entries(listed, category, file.name):
                package = _pipenv_package(name, entry, file.name, markers, indexes, outside)
                if package is not None:
                    packages.append(package)
        first = next(iter(indexes.values()), "")
        return LockContents(
            tuple(packages),
            conflicts=find_python_conflict(markers, file.name, platform, wanted),
            asked=(first,),
        )


def _pipenv_package(
    name: str,
    entry: dict[str, Any],
    file: str,
    markers: Markers,
    indexes: dict[str, str],
    outside: str,
) -> ListedPackage | None:
    marker = read_text(entry, "markers", file)
    holds = markers.decide(marker)
    if holds is False:
        return None
    stated = read_text(entry, "version", file)
    pin = _PIN.fullmatch(stated.strip())
    index = read_text(entry, "index", file)
    if index and index not in indexes:
        what = f"{name} is of the index {index!r}, which is not among the sources"
        raise BadInput(what, field=file, value=index, hint="lock the project again")
    direct = read_text(entry, "file", file) or read_text(entry, "path", file)
    git = read_text(entry, "git", file)
    hashes = entry.get("hashes")
    digests = [str(one) for one in hashes] if isinstance(hashes, list) else []
    return ListedPackage(
        name,
        f"{file}: {name}",
        version=pin[1] if pin else None,
        specifier="" if pin else stated or (f"@ {direct or git}" if direct or git else ""),
        sources=tuple(url for url in (direct, git) if url),
        when="" if holds else marker,
        selection=outside,
        wheels=tuple(select_wheels([{"url": direct}], markers.platform)) if direct else (),
        index=indexes.get(index, ""),
        digests=tuple(
            one.removeprefix("sha256:").lower() for one in digests if one.startswith("sha256:")
        ),
    )


class PipReport:
    """The report of ``pip install --dry-run --report FILE``."""

    name = "pip installation report"

    def recognises(self, file: LockFile) -> bool:
        """Look for pip's version and the list of what it installs."""
        return bool(_REPORT_SHAPE.search(file.text) and _INSTALL_SHAPE.search(file.text))

    def read(self, file: LockFile, platform: Platform, selection: Selection) -> LockContents:
        """Return every package, if the report was written for the platform."""
        document = _read_report(file)
        entries = read_tables(document.get("install"), "install", file.name)
        conflicts = _check_environment(document, file.name, platform)
        packages = tuple(_reported_package(one, file.name, platform) for one in entries)
        return LockContents(packages, conflicts=conflicts)


def _reported_package(entry: dict[str, Any], file: str, platform: Platform) -> ListedPackage:
    download = read_table(entry.get("download_info"), "download_info", file)
    archive = read_table(download.get("archive_info"), "archive_info", file)
    url = read_text(download, "url", file)
    return _described_package(
        entry, file, sources=(url,) if url else (), files=[{**archive, "url": url}], on=platform
    )


class PipInspection:
    """The output of ``pip inspect`` about an installed environment."""

    name = "pip inspect"

    def recognises(self, file: LockFile) -> bool:
        """Look for pip's version and the list of what is installed."""
        return bool(_REPORT_SHAPE.search(file.text) and _INSTALLED_SHAPE.search(file.text))

    def read(self, file: LockFile, platform: Platform, selection: Selection) -> LockContents:
        """Return every package, if the environment is one of the platform."""
        document = _read_report(file)
        entries = read_tables(document.get("installed"), "installed", file.name)
        conflicts = _check_environment(document, file.name, platform)
        packages = []
        for entry in entries:
            direct = read_table(entry.get("direct_url"), "direct_url", file.name)
            url = read_text(direct, "url", file.name)
            archive = read_table(direct.get("archive_info"), "archive_info", file.name)
            files = [{**archive, "url": url}] if url else []
            found = _described_package(
                entry, file.name, sources=(url,) if url else (), files=files, on=platform
            )
            packages.append(found)
        return LockContents(tuple(packages), conflicts=conflicts)


def _described_package(
    entry: dict[str, Any],
    file: str,
    *,
    sources: tuple[str, ...],
    files: list[dict[str, Any]],
    on: Platform,
) -> ListedPackage:
    """Return a package by its metadata."""
    metadata = read_table(entry.get("metadata"), "metadata", file)
    name, version = read_text(metadata, "name", file), read_text(metadata, "version", file)
    if not name or not version:
        raise BadInput("must state name and version", field=f"{file}: metadata", value=name)
    required = metadata.get("requires_dist")
    texts = required if isinstance(required, list) else []
    depends = [match[1] for one in texts if (match := _REQUIRED_NAME.match(str(one)))]
    return ListedPackage(
        name,
        f"{file}: {name}",
        version=version,
        sources=sources,
        wheels=tuple(select_wheels(files, on)),
        depends=tuple(dict.fromkeys(depends)),
    )


def read_object(file: LockFile) -> dict[str, Any]:
    """Return the JSON object in a file."""
    try:
        found = decode_strict(file.text.encode())
    except DuplicateKeyError as error:
        raise BadInput(str(error), field=file.name) from None
    except (*DECODE_ERRORS, ValueError) as error:
        raise BadInput(f"is not valid JSON: {quote_error(error)}", field=file.name) from None
    if not isinstance(found, dict):
        raise BadInput("must be a JSON object", field=file.name)
    return found


def _read_report(file: LockFile) -> dict[str, Any]:
    """Read a document of pip."""
    document = read_object(file)
    version = str(document.get("version", ""))
    if version.partition(".")[0] != "1":
        what = f"has version {version!r} of pip's format"
        raise BadInput(what, field=file.name, hint="use version 1")
    return document


def _check_environment(document: dict[str, Any], file: str, platform: Platform) -> Any:
    """Return the conflict with the target's Python."""
    described = read_table(document.get("environment"), "environment", file)
    machine = read_text(described, "platform_machine", file)
    cpu = CPU_NAMES.get(machine.lower(), machine)
    system = read_text(described, "sys_platform", file)
    os = _SYSTEMS.get(system, system)
    wanted = "linux" if platform.os == "wsl" else platform.os
    if (os and os != wanted) or (cpu and cpu != platform.cpu):
        what = f"is for {os} {cpu}, the target is {platform}"
        hint = "write it on a machine like those of the target"
        raise InconclusiveInput(what, field=file, hint=hint)
    python = read_text(described, "python_version", file)
    requires = f"=={python}.*" if python else ""
    markers = Markers(platform, file=file, requires_python=requires)
    return find_python_conflict(markers, file, platform, requires)


def _entries(value: Any, where: str, file: str) -> Iterator[tuple[str, dict[str, Any]]]:
    listed = read_table(value, where, file)
    if len(listed) > MAX_PACKAGES:
        raise BadInput(f"has more than {MAX_PACKAGES} items", field=f"{file}: {where}")
    for name, entry in listed.items():
        yield refuse_variable(name, file), read_table(entry, f"{where}.{name}", file)


def read_table(value: Any, where: str, file: str) -> dict[str, Any]:
    """Return an object; an absent one is empty."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadInput("must be an object", field=f"{file}: {where[:200]}")
    return value
