"""pixi.lock: environments, each with its packages for each platform.

Source: https://pixi.sh/latest/workspace/lockfile/ and the files that pixi writes (versions 4 to 6).
"""

from __future__ import annotations

import re
from typing import Any

from msgspec.structs import replace

from compatgate.discovery.lockfiles import build_label, conda
from compatgate.discovery.lockfiles.interface import Contents, LockFile, Package, Selection
from compatgate.discovery.lockfiles.platform import Platform
from compatgate.discovery.lockfiles.text import read_yaml, refuse_variable, tables
from compatgate.discovery.lockfiles.wheels import fitting_wheels
from compatgate.errors import BadInput, Inconclusive

_VERSIONS = ("4", "5", "6")
_DEFAULT = "default"
_SHAPE = (re.compile(r"^environments:\s*$", re.M), re.compile(r"^packages:\s*$", re.M))


class PixiLock:
    """The lockfile of pixi's workspaces."""

    name = "pixi.lock"

    def recognises(self, file: LockFile) -> bool:
        """pixi's name, or its environments and packages."""
        return file.name.lower() == "pixi.lock" or (
            file.may_end(".lock") and all(shape.search(file.text) for shape in _SHAPE)
        )

    def read(self, file: LockFile, platform: Platform, selection: Selection) -> Contents:
        """Packages of the default environment; those of others need to be selected."""
        document = read_yaml(file.text, file.name)
        version = str(document.get("version")) if isinstance(document, dict) else ""
        environments = document.get("environments") if isinstance(document, dict) else None
        if version not in _VERSIONS or not isinstance(environments, dict):
            hint = f"versions {', '.join(_VERSIONS)} are read"
            raise BadInput("is not a pixi lock that is read", field=file.name, hint=hint)
        known = _known(tables(document.get("packages"), "packages", file.name))
        wanted = selection.extras | selection.groups or {_DEFAULT}
        found: list[Package] = []
        platforms: set[str] = set()
        for name, environment in environments.items():
            listed = environment.get("packages") if isinstance(environment, dict) else None
            if not isinstance(listed, dict):
                raise BadInput("must have packages", field=f"{file.name}: {name}")
            platforms |= {str(p) for p in listed if listed[p]}
            chosen = "" if name in wanted else f"environment {name}"
            for item in tables(listed.get(platform.conda), str(name), file.name):
                package = _package(item, file.name, known, platform, chosen)
                if package:
                    found.append(package)
        if platforms and not found:
            problem = (
                f"has no packages for {platform.conda}, only for {', '.join(sorted(platforms))}"
            )
            raise Inconclusive(
                problem, field=file.name, hint=f"add {platform.conda} and lock again"
            )
        return Contents(tuple(found))


def _known(packages: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The described packages by their URL; Python's have their name and version there."""
    return {str(p.get("pypi") or p.get("conda") or p.get("url")): p for p in packages}


def _package(
    item: dict[str, Any],
    file: str,
    known: dict[str, dict[str, Any]],
    platform: Platform,
    selection: str,
) -> Package | None:
    for ecosystem in ("conda", "pypi"):
        url = item.get(ecosystem)
        if not isinstance(url, str):
            continue
        refuse_variable(url, file)
        if ecosystem == "conda":
            package = conda.from_url(url, file)
            if package is None:
                return None
            origin = f"{file}: {package.name}"
            return replace(package, origin=origin, sources=(url,), selection=selection)
        described = known.get(url, {})
        named = build_label.file_version(url) or ("", None)
        name = str(described.get("name") or named[0])
        version = described.get("version") or named[1]
        files = [{"url": url, "hash": described.get("sha256")}]
        return Package(
            name,
            f"{file}: {name}",
            version=None if version is None else str(version),
            sources=(url,),
            selection=selection,
            wheels=tuple(fitting_wheels(files, platform)),
        )
    return None
