"""Choose among the builds of a locked package: wheels for the platform, variants, CUDA labels.

A label names the CUDA of a package's build; it comes from an index, a file name or a build string.

Sources: PEP 427 (names of wheels), PEP 425 (tags), PEP 825 (variant labels; a draft in 2026).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

from msgspec import Struct
from packaging.utils import InvalidSdistFilename, InvalidWheelFilename, parse_sdist_filename
from packaging.utils import parse_wheel_filename as _parse_wheel
from packaging.version import InvalidVersion

from compatgate.core.stack_facts import conda_label
from compatgate.core.versions import parse_version
from compatgate.discovery.lockfiles.platform import Platform

_INDEX_LABEL = re.compile(r"/(?P<label>cu\d{2,4}|cpu|rocm\d[\d.]*|xpu)(?=/|$)")
"""``https://download.pytorch.org/whl/nightly/cu124/``, ``https://wheels.vllm.ai/0.9.0/cu128``."""
_JETSON_INDEX = re.compile(r"/(?P<jetpack>jp\d)/(?P<label>cu\d{2,4})(?=/|$)")
"""``https://pypi.jetson-ai-lab.io/jp6/cu126``: builds for Jetson, unlike those of its ``sbsa``."""
_LOCAL_LABEL = re.compile(r"\+(?P<label>[a-z0-9._\-]+)$", re.IGNORECASE)
_ACCELERATOR = re.compile(r"cu(?:da)?[\d-]|cpu|rocm|xpu", re.IGNORECASE)
_CONDA_CUDA = re.compile(
    r"(?:^|[_*\-])cuda[_\-]?(?:(?P<dotted>\d{1,2}\.\d{1,2})|(?P<tag>\d{2,3}))(?!\d)"
)
_CONDA_CPU = re.compile(r"(?:^|[_*\-])cpu(?:[_*\-]|$)")
_PLAIN_CUDA = re.compile(r"(?:^|[_*\-])(?:cuda|gpu)(?:[_*\-]|$|py)")


def parse_url_label(url: str) -> str:
    """Return ``cu121`` for an index or wheel URL below ``/whl/cu121``; ``""`` without a label.

    An index of builds for Jetson has a label of its own, ``jp6.cu126``.
    """
    try:
        path = unquote(urlsplit(url).path).lower()
    except ValueError:
        return ""
    if match := _JETSON_INDEX.search(path):
        return f"{match['jetpack']}.{match['label']}"
    labels: list[str] = _INDEX_LABEL.findall(path)
    return labels[-1] if labels else ""


def parse_version_label(version: str) -> str:
    """Return ``cu121`` for ``2.4.1+cu121``; ``""`` without a label of an accelerator."""
    match = _LOCAL_LABEL.search(version)
    return match["label"].lower() if match and _ACCELERATOR.match(match["label"]) else ""


def collect_labels(urls: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct labels in URLs: a wheel's version comes before its folder."""
    labels: dict[str, None] = {}
    for url in urls:
        named = parse_file_name(url)
        label = (parse_version_label(named[1]) if named else "") or parse_url_label(url)
        if label:
            labels[label] = None
    return tuple(labels)


def parse_file_name(url: str) -> tuple[str, str] | None:
    """Return name and version in the name of a wheel or sdist: ``("torch", "2.4.1+cu121")``."""
    name = unquote(url.split("#")[0].split("?")[0]).replace("\\", "/").rsplit("/", 1)[-1]
    try:
        if name.endswith(".whl"):
            project, version, *_ = _parse_wheel(split_variant(name)[0])
        elif name.endswith((".tar.gz", ".zip")):
            project, version = parse_sdist_filename(name)
        else:
            return None
    except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion, ValueError):
        return None
    return project, str(version)


def split_variant(wheel: str) -> tuple[str, str]:
    """Split a wheel's name into the name of PEP 427 and the variant label (PEP 825) or ``""``.

    The label is one more part, last: ``torch-2.8.0-cp311-cp311-manylinux_2_28_x86_64-cu128.whl``.
    """
    parts = wheel.removesuffix(".whl").split("-")
    if len(parts) in (6, 7) and not parts[-1].startswith(_PLATFORM_STARTS):
        return "-".join(parts[:-1]) + ".whl", parts[-1]
    return wheel, ""


_PLATFORM_STARTS = ("manylinux", "musllinux", "linux", "macosx", "win", "any", "ios", "android")


def parse_conda_label(build: str) -> str:
    """Return the label of a conda build string, as PyPI's wheels write it.

    ``py3.11_cuda12.1_cudnn8.9.2_0`` is ``cu121``, ``cuda126_py311h...`` is ``cu126``,
    ``py3.11_cpu_0`` is ``cpu``; ``""`` without a label.
    """
    text = build.lower()
    if match := _CONDA_CUDA.search(text):
        return f"cu{(match['dotted'] or match['tag']).replace('.', '')}"
    return "cpu" if _CONDA_CPU.search(text) else ""


def parse_conda_framework_label(build: str, channel: str = "") -> str:
    """Return the label of a framework's conda build, which differs from labels of PyPI's wheels.

    ``cuda126_py312h...`` is ``conda.cu126``, and ``conda.forge.cu126`` where the channel is
    conda-forge; ``h955ad1f_0`` is ``conda``, ``py3.11_cpu_0`` is ``cpu``.
    """
    label, begins = parse_conda_label(build), conda_label(channel)
    return label if label == "cpu" else f"{begins}.{label}" if label else begins


def uses_cuda(build: str) -> bool:
    """Return whether a conda build string names CUDA, with or without its version."""
    text = build.lower()
    return bool(_PLAIN_CUDA.search(text)) or parse_conda_label(text).startswith("cu")


_MAX_WHEELS = 2000
_ARCHITECTURE = {"x86_64": ("x86_64", "amd64"), "aarch64": ("aarch64", "arm64")}
_PYTHON_TAG = re.compile(r"(?:cp|py)(\d)(\d*)")
_DIGEST = re.compile(r"[0-9a-f]{64}")


class LockedWheel(Struct, frozen=True):
    """A wheel that a lock names, with the label of its variant and its digest, if it has them."""

    url: str
    label: str = ""
    sha256: str = ""


def select_wheels(value: Any, platform: Platform) -> list[LockedWheel]:
    """Return the wheels of a package's ``wheels`` array that the platform can install.

    The array's tables have ``url``, ``path`` or ``filename``, in uv.lock as in pylock.toml.
    """
    wheels = []
    for item in (value if isinstance(value, list) else [])[:_MAX_WHEELS]:
        if not isinstance(item, dict):
            continue
        url = next((str(item[k]) for k in ("url", "path", "filename", "name") if k in item), "")
        name, label = split_variant(unquote(url.split("#")[0]).rsplit("/", 1)[-1])
        if name.endswith(".whl") and _fits(name, platform):
            hashes = item.get("hashes")
            stated = hashes.get("sha256") if isinstance(hashes, dict) else item.get("hash")
            digest = str(stated or "").removeprefix("sha256:").lower()
            wheels.append(LockedWheel(url, label, (digest if _DIGEST.fullmatch(digest) else "")))
    return wheels


def read_files(value: Any) -> list[dict[str, Any]]:
    """Return the ``files`` of Poetry and PDM in the form of other locks' wheels."""
    rows = [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
    return [
        {"url": str(item.get("url", item.get("file", ""))), "hash": item.get("hash")}
        for item in rows
    ]


def describe_missing_wheel(
    table: Mapping[str, Any], wheels: Sequence[LockedWheel], platform: Platform
) -> str:
    """Return the undecided condition of a package without a source or a wheel for the platform."""
    if wheels or not table.get("wheels") or table.get("sdist"):
        return ""
    return f"a wheel exists for {platform}, which the lock lacks"


def _fits(name: str, platform: Platform) -> bool:
    """Return whether a wheel's tags allow the platform; without a stated Python any tag fits."""
    parts = name.removesuffix(".whl").split("-")
    if len(parts) < 5:
        return False
    python, abi, tags = parts[-3:]
    starts = ("win",) if platform.os == "windows" else ("manylinux", "linux")
    ends = _ARCHITECTURE[platform.cpu]
    return _python_fits(python, abi, platform.python) and any(
        tag == "any" or (tag.startswith(starts) and tag.endswith(ends)) for tag in tags.split(".")
    )


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


def select_variants(
    value: Any, wheels: Sequence[LockedWheel]
) -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]]:
    """Return the labels of the fitting variant wheels, and the properties of each.

    ``variants-json`` of a package is ``{"variants": {label: {namespace: {feature: [value]}}}}``;
    with a URL alone the lock lacks the properties.
    """
    labels = tuple(dict.fromkeys(wheel.label for wheel in wheels if wheel.label))
    table = value.get("variants") if isinstance(value, dict) else None
    found: dict[str, tuple[str, ...]] = {}
    for label in labels:
        properties = table.get(label) if isinstance(table, dict) else None
        found[label] = tuple(_variant_lines(properties)) if isinstance(properties, dict) else ()
    return labels, found


def _variant_lines(properties: dict[str, Any]) -> list[str]:
    return [
        f"{namespace} :: {feature} :: {value}"
        for namespace, features in properties.items()
        if isinstance(features, dict)
        for feature, values in features.items()
        if isinstance(values, list)
        for value in values
    ]
