"""Wheels of a locked package: those for the target's platform, and their variants.

Sources: PEP 427 (names of wheels), PEP 425 (tags), PEP 825 (variant labels; a draft in 2026).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from msgspec import Struct

from compatgate.core.versions import parse_version
from compatgate.discovery.lockfiles.build_label import without_variant
from compatgate.discovery.lockfiles.platform import Platform

_MOST_WHEELS = 2000
_ARCHITECTURE = {"x86_64": ("x86_64", "amd64"), "aarch64": ("aarch64", "arm64")}
_PYTHON_TAG = re.compile(r"(?:cp|py)(\d)(\d*)")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_REAL = re.compile(r"(\d{2,3}[af]?)_(real|virtual)")


class Wheel(Struct, frozen=True):
    """A wheel that a lock names.

    Attributes:
        url: or its path.
        label: of its variant, ``""`` without one.
        sha256: in hexadecimal, ``""`` where the lock does not state it.
    """

    url: str
    label: str = ""
    sha256: str = ""


def fitting_wheels(value: Any, platform: Platform) -> list[Wheel]:
    """The wheels of a package's ``wheels`` array that the platform can install.

    The array's tables have ``url``, ``path`` or ``filename``, in uv.lock as in pylock.toml.
    """
    found = []
    for item in (value if isinstance(value, list) else [])[:_MOST_WHEELS]:
        if not isinstance(item, dict):
            continue
        url = next((str(item[k]) for k in ("url", "path", "filename", "name") if k in item), "")
        name, label = without_variant(unquote(url.split("#")[0]).rsplit("/", 1)[-1])
        if name.endswith(".whl") and _fits(name, platform):
            found.append(Wheel(url, label, _sha256(item)))
    return found


def named_files(value: Any) -> list[dict[str, Any]]:
    """Return the ``files`` of Poetry and PDM in the form of other locks' wheels."""
    rows = [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
    return [
        {"url": str(item.get("url", item.get("file", ""))), "hash": item.get("hash")}
        for item in rows
    ]


def _sha256(item: Mapping[str, Any]) -> str:
    """Return the digest that uv (``hash``) or a pylock (``hashes``) states."""
    hashes = item.get("hashes")
    stated = hashes.get("sha256") if isinstance(hashes, dict) else item.get("hash")
    digest = str(stated or "").removeprefix("sha256:").lower()
    return digest if _DIGEST.fullmatch(digest) else ""


def no_wheel(table: Mapping[str, Any], wheels: Sequence[Wheel], platform: Platform) -> str:
    """What is undecided of a package that has wheels, but none for the platform, and no source."""
    if wheels or not table.get("wheels") or table.get("sdist"):
        return ""
    return f"there is a wheel for {platform}, which the lock does not have"


def _fits(name: str, platform: Platform) -> bool:
    """Whether a wheel's tags allow the platform; a Python that is not stated allows all."""
    parts = name.removesuffix(".whl").split("-")
    if len(parts) < 5:
        return False
    python, abi, tags = parts[-3:]
    return _python_fits(python, abi, platform.python) and any(
        _platform_fits(tag, platform) for tag in tags.split(".")
    )


def _platform_fits(tag: str, platform: Platform) -> bool:
    if tag == "any":
        return True
    starts = ("win",) if platform.os == "windows" else ("manylinux", "linux")
    return tag.startswith(starts) and tag.endswith(_ARCHITECTURE[platform.cpu])


def _python_fits(tags: str, abi: str, python: str | None) -> bool:
    if python is None:
        return True
    have = parse_version("python", python).parts
    for tag in tags.split("."):
        match = _PYTHON_TAG.fullmatch(tag)
        if not match or int(match[1]) != have[0]:
            continue
        minor = int(match[2]) if match[2] else 0
        exact = tag.startswith("cp") and abi not in ("abi3", "none")
        if minor == have[1] if exact else minor <= have[1]:
            return True
    return False


def variants_of(
    value: Any, wheels: Sequence[Wheel]
) -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]]:
    """Labels of the fitting variant wheels, and the properties of each.

    ``variants-json`` of a package is ``{"variants": {label: {namespace: {feature: [value]}}}}``;
    where it only names a URL, the properties are not in the lock.
    """
    labels = tuple(dict.fromkeys(wheel.label for wheel in wheels if wheel.label))
    table = value.get("variants") if isinstance(value, dict) else None
    found: dict[str, tuple[str, ...]] = {}
    for label in labels:
        properties = table.get(label) if isinstance(table, dict) else None
        found[label] = tuple(_lines(properties)) if isinstance(properties, dict) else ()
    return labels, found


def _lines(properties: dict[str, Any]) -> list[str]:
    return [
        f"{namespace} :: {feature} :: {value}"
        for namespace, features in properties.items()
        if isinstance(features, dict)
        for feature, values in features.items()
        if isinstance(values, list)
        for value in values
    ]


def cuda_of(properties: Sequence[str]) -> str:
    """``12.8`` of ``nvidia :: cuda_version_lower_bound :: 12.8``."""
    return next(iter(_values(properties, "cuda_version_lower_bound")), "")


def arch_of(properties: Sequence[str]) -> tuple[str, ...]:
    """``sm_90`` of ``nvidia :: sm_arch :: 90_real``, ``compute_120`` of ``120_virtual``."""
    found = []
    for value in _values(properties, "sm_arch"):
        if match := _REAL.fullmatch(value):
            found.append(f"{'sm' if match[2] == 'real' else 'compute'}_{match[1]}")
    return tuple(found)


def _values(properties: Sequence[str], feature: str) -> list[str]:
    start = f"nvidia :: {feature} :: "
    return [line.removeprefix(start) for line in properties if line.startswith(start)]
