"""Read pylock.toml (PEP 751), checked by `packaging.pylock`; wheel variants as PEP 825 drafts them.

Source: https://packaging.python.org/en/latest/specifications/pylock-toml/.
"""

from __future__ import annotations

import re
from typing import Any

from packaging.pylock import Pylock, PylockUnsupportedVersionError, PylockValidationError

from compatgate.discovery.lockfiles.interface import Contents, LockFile, Package, Selection
from compatgate.discovery.lockfiles.platform import Markers, Platform, python_conflict
from compatgate.discovery.lockfiles.text import read_toml, tables, text_of
from compatgate.discovery.lockfiles.wheel_builds import (
    fitting_wheels,
    no_wheel,
    variants_of,
    without_variant,
)
from compatgate.discovery.observations import Conflict
from compatgate.errors import BadInput

_NAME = re.compile(r"pylock\.([^.]+\.)?toml", re.IGNORECASE)
_SHAPE = (re.compile(r"^lock-version = ", re.M), re.compile(r"^\[\[packages\]\]$", re.M))


class PylockToml:
    """The standard lockfile."""

    name = "pylock.toml"

    def recognises(self, file: LockFile) -> bool:
        """Look for the standard's names, or its version and packages."""
        return bool(_NAME.fullmatch(file.name)) or all(s.search(file.text) for s in _SHAPE)

    def read(self, file: LockFile, platform: Platform, selection: Selection) -> Contents:
        """Return packages whose markers hold."""
        document = read_toml(file.text, file.name)
        _validate(document, file.name)
        requires = text_of(document, "requires-python", file.name)
        default = document.get("default-groups")
        groups = {str(group) for group in default} if isinstance(default, list) else set()
        markers = Markers(
            platform,
            file=file.name,
            requires_python=requires,
            extras=selection.extras,
            groups=groups | selection.groups,
        )
        packages = []
        for entry in tables(document.get("packages"), "packages", file.name):
            package = _package(entry, file.name, markers, platform, document)
            if package:
                packages.append(package)
        conflicts = python_conflict(markers, file.name, platform, requires)
        conflicts += _environments(document.get("environments"), file.name, markers, platform)
        return Contents(tuple(packages), conflicts=conflicts)


def _validate(document: dict[str, Any], file: str) -> None:
    try:
        Pylock.from_dict(_without_labels(document))
    except PylockUnsupportedVersionError as error:
        raise BadInput(f"has a version that is not read: {error}", field=file) from None
    except PylockValidationError as error:
        raise BadInput(f"is not a pylock file: {str(error)[:300]}", field=file) from None
    except Exception as error:  # the library accepts some wrong types
        raise BadInput(f"is not a pylock file: {str(error)[:300]}", field=file) from None


def _without_labels(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document with names of variant wheels that the library accepts."""
    packages = document.get("packages")
    if not isinstance(packages, list):
        return document
    return {**document, "packages": [_plain(package) for package in packages]}


def _plain(package: Any) -> Any:
    wheels = package.get("wheels") if isinstance(package, dict) else None
    if not isinstance(wheels, list):
        return package
    return {**package, "wheels": [_plain_wheel(wheel) for wheel in wheels]}


def _plain_wheel(wheel: Any) -> Any:
    if not isinstance(wheel, dict):
        return wheel
    changed = dict(wheel)
    for key in ("url", "path", "name"):
        if isinstance(value := wheel.get(key), str):
            folder, slash, name = value.rpartition("/")
            changed[key] = folder + slash + without_variant(name)[0]
    return changed


def _package(
    entry: dict[str, Any],
    file: str,
    markers: Markers,
    platform: Platform,
    document: dict[str, Any],
) -> Package | None:
    marker = text_of(entry, "marker", file)
    holds = markers.decide(marker)
    selection = ""
    if holds is False:
        optional = (_names(document, "extras"), _names(document, "dependency-groups"))
        selection = markers.selected_by(marker, *optional)
        if not selection:
            return None
    name = text_of(entry, "name", file)
    wheels = fitting_wheels(entry.get("wheels"), platform)
    archive = entry.get("archive")
    if isinstance(archive, dict):
        wheels = fitting_wheels([archive], platform)
    labels, variants = variants_of(entry.get("variants-json"), wheels)
    index = text_of(entry, "index", file)
    return Package(
        name,
        f"{file}: {name}",
        version=text_of(entry, "version", file) or None,
        specifier="" if "version" in entry else "its own source",
        sources=tuple(([index] if index else []) + [wheel.url for wheel in wheels]),
        when=marker if holds is None else no_wheel(entry, wheels, platform),
        selection=selection,
        labels=labels,
        variants=variants,
        wheels=tuple(wheels),
        depends=tuple(text_of(one, "name", file) for one in _dependencies(entry, file)),
        index=index,
    )


def _dependencies(entry: dict[str, Any], file: str) -> list[dict[str, Any]]:
    return tables(entry.get("dependencies"), "dependencies", file)


def _names(document: dict[str, Any], key: str) -> list[str]:
    value = document.get(key)
    return [str(name) for name in value] if isinstance(value, list) else []


def _environments(
    value: Any, file: str, markers: Markers, platform: Platform
) -> tuple[Conflict, ...]:
    """Return a conflict when the lock names environments and the target matches none."""
    stated = [str(marker) for marker in value] if isinstance(value, list) else []
    if not stated or any(markers.decide(marker) is not False for marker in stated):
        return ()
    return (Conflict("platform", f"{file} is not for {platform}: {stated[0]}", None),)
