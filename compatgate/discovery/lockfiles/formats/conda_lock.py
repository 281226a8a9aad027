"""conda-lock.yml: one list of packages for all platforms.

Source: conda-lock's unified format, version 1 (https://conda.github.io/conda-lock/).
"""

from __future__ import annotations

import re
from typing import Any

from msgspec.structs import replace

from compatgate.discovery.lockfiles import conda
from compatgate.discovery.lockfiles.interface import Contents, LockFile, Package, Selection
from compatgate.discovery.lockfiles.platform import Platform
from compatgate.discovery.lockfiles.text import read_yaml, tables, text_of
from compatgate.discovery.lockfiles.wheels import fitting_wheels
from compatgate.errors import BadInput, Inconclusive

_SHAPE = (re.compile(r"^metadata:", re.MULTILINE), re.compile(r"^package:", re.MULTILINE))
_NAME = re.compile(r".*conda-lock\.ya?ml", re.IGNORECASE)


class CondaLock:
    """conda-lock's unified lockfile."""

    name = "conda-lock.yml"

    def recognises(self, file: LockFile) -> bool:
        """conda-lock's name, or its metadata and packages."""
        return bool(_NAME.fullmatch(file.name)) or (
            file.may_end(".yml", ".yaml") and all(s.search(file.text) for s in _SHAPE)
        )

    def read(self, file: LockFile, platform: Platform, selection: Selection) -> Contents:
        """Packages of the main category and of the selected ones, for the platform."""
        document = read_yaml(file.text, file.name)
        if not isinstance(document, dict) or "package" not in document:
            raise BadInput("is not a conda-lock file", field=file.name)
        if str(document.get("version", "1")) != "1":
            problem = f"has version {document['version']!r} of conda-lock's format"
            raise BadInput(problem, field=file.name, hint="version 1 is read")
        entries = tables(document["package"], "package", file.name)
        own = [e for e in entries if e.get("platform") in (platform.conda, "noarch")]
        if entries and not own:
            have = ", ".join(sorted({str(e.get("platform")) for e in entries}))
            problem = f"has no packages for {platform.conda}, only for {have}"
            raise Inconclusive(problem, field=file.name, hint=f"lock for {platform.conda} as well")
        return Contents(tuple(_package(entry, file.name, platform, selection) for entry in own))


def _package(entry: dict[str, Any], file: str, platform: Platform, selection: Selection) -> Package:
    name = text_of(entry, "name", file)
    url = text_of(entry, "url", file)
    category = text_of(entry, "category", file, "main")
    wanted = {"main", *selection.extras, *selection.groups}
    is_pip = entry.get("manager") == "pip"
    files = [{"url": url, "hashes": entry.get("hash")}] if is_pip else []
    stated = None if is_pip else conda.from_url(url, file)
    package = stated or Package(name, "", ecosystem="pypi" if is_pip else "conda")
    return replace(
        package,
        name=name,
        origin=f"{file}: {name}",
        version=text_of(entry, "version", file) or None,
        sources=(url,) if url else (),
        wheels=tuple(fitting_wheels(files, platform)),
        build=text_of(entry, "build", file, package.build),
        selection="" if category in wanted else f"category {category}",
    )
