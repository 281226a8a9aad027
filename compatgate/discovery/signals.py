"""Recognise components by published signals: variables, labels and names of packages.

The table ``matrix/facts/image_signals.yaml`` says which variable, label and package names which
component, and how far to trust each; this module reads the table, and reads versions as the
package managers of Linux distributions (dpkg, rpm, apk) write them:
``libcudnn9-cuda-12`` 9.1.0.70-1, ``libnccl2`` 2.21.5-1+cuda12.4,
``cuda-cudart-12-4`` 12.4.127-1, ``libcudnn8`` 8.9.7.29-1.cuda12.2 (RPM).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from compatgate.core.components import find_component, is_framework
from compatgate.core.vocabulary import BUILT_PER_CUDA
from compatgate.discovery.observations import Confidence, Observation, is_version

CUDA_COMPAT = "cuda-compat"
COMPAT_USE = "cuda-compat-use"
_SPECIAL_SIGNALS = {
    "cuda-compat": CUDA_COMPAT,
    "compiled compute capabilities": "arch",
    "driver requirement": "require",
}
_TRUST: dict[str, Confidence] = {"high": "metadata", "medium": "derived"}
_EPOCH = re.compile(r"^\d+:")
_CUDA = re.compile(r"cuda-?(\d{1,2})(?:\.(\d{1,2}))?")
_LOCAL = re.compile(r"\+cu\d{2,4}$")
_DEBIAN = re.compile(r"(?P<name>[a-z0-9][a-z0-9.+-]*)=(?P<version>\S+)")
_RPM = re.compile(r"(?P<name>[A-Za-z][\w.+-]*?)-(?P<version>\d[\w.~+]*)-(?P<release>\d[\w.~+]*)")


class Signal(Struct, frozen=True):
    """A variable or label that states a component, ``cuda-compat``, ``arch`` or ``require``.

    ``confidence`` is None when the value is not reliable.
    """

    name: str
    component: str
    confidence: Confidence | None
    families: tuple[str, ...]


class Signals(Struct, frozen=True):
    """The published variables, labels and package names of images, each with its component."""

    environment: tuple[Signal, ...]
    labels: tuple[Signal, ...]
    packages: tuple[tuple[re.Pattern[str], str], ...]
    conda: dict[str, str]
    ignored: frozenset[str]

    def package(self, name: str) -> str | None:
        """Return the component of a dpkg, rpm or apk package, None for other packages."""
        return next((one for pattern, one in self.packages if pattern.fullmatch(name)), None)


def read_signals(document: Mapping[str, Any]) -> Signals:
    """Compile the fact file."""
    on_disk = document["on_disk"]
    environment = document["environment"]
    return Signals(
        environment=tuple(_read_rows(environment)),
        labels=tuple(_read_rows(document["labels"])),
        packages=tuple(
            (_pattern(row["name"]), component)
            for row in (*on_disk["dpkg"], *on_disk["rpm"])
            if (component := _component(str(row["component"]))) is not None
        ),
        conda={
            name: component
            for row in on_disk["conda"]
            if (component := _component(str(row["component"])))
            for name in re.split(r",\s*", row["name"])
        },
        ignored=frozenset(e["name"] for e in environment if e["component"] == "none"),
    )


def _read_rows(rows: Iterable[Mapping[str, Any]]) -> Iterable[Signal]:
    for row in rows:
        component = _component(str(row["component"]))
        if component is None:
            continue
        trust = str(row["trust"]).split(" ", 1)[0]
        yield Signal(
            row["name"],
            component,
            _TRUST.get(trust),
            tuple(str(family).partition(" ")[0] for family in row.get("families") or ()),
        )


def _pattern(name: str) -> re.Pattern[str]:
    """Compile ``cuda-cudart-MAJOR-MINOR``; the soname's number (``libcudnn8``) may differ."""
    text = re.sub(r"(?<=[a-z])\d+$", r"\\d+", re.escape(name))
    text = re.sub(r"(?<=[a-z])\d+(?=\\-)", r"\\d+", text)
    return re.compile(text.replace("MAJOR", r"\d+").replace("MINOR", r"\d+"))


def _component(text: str) -> str | None:
    """Return nccl for ``nccl and its CUDA build``, cuda for ``cuda, cudart``; else None."""
    if text in _SPECIAL_SIGNALS:
        return _SPECIAL_SIGNALS[text]
    first = re.split(r", | and | of | \(", text, maxsplit=1)[0]
    component = find_component(first.replace(" ", ""))
    return component.component.name if component else None


def observe_package(
    name: str, version: str, origin: str, signals: Signals, left: list[str]
) -> Observation | None:
    """Return the component in a package; None for most packages."""
    name = name.lower()
    component = signals.package(name)
    if component is None:
        return None
    if component == CUDA_COMPAT:  # its version is the driver's; its name states the CUDA version
        return Observation(CUDA_COMPAT, ".".join(re.findall(r"\d+", name)[:2]), origin, "metadata")
    if not version:
        left.append(f"{component}: no version is stated ({origin})")
        return None
    clean = tidy_version(component, version, name)
    if clean is None:
        left.append(f"{origin}: {version[:100]!r} is not a version of {component}")
        return None
    return Observation(component, clean, origin, "metadata")


def split_package(text: str) -> tuple[str, str] | None:
    """Split ``libcudnn8=8.9.6.50-1+cuda11.8`` or ``libcudnn8-8.9.6.50-1.cuda11.8``.

    The revision stays with the version, since it names the CUDA of the build.
    """
    if match := _DEBIAN.fullmatch(text):
        return match["name"], match["version"]
    # The name may hold numbers of its own (libcublas-12-4-12.4.5.8-1): the version is the last
    # but one of the parts.
    parts = text.rsplit("-", 2)
    if len(parts) == 3 and _RPM.fullmatch(text) and parts[1][:1].isdigit():
        return parts[0], f"{parts[1]}-{parts[2]}"
    return None


def tidy_version(component: str, text: str, package: str = "") -> str | None:
    """Return a version without the distribution's additions; None when the component has none.

    Of ``12.4.127-1`` 12.4.127, of ``8.9.6.50-1+cuda11.8`` 8.9.6.50+cu118, of ``13.0.2.006`` 13.0.2;
    a package like ``libcudnn9-cuda-12`` names the CUDA of the build.
    """
    whole = _EPOCH.sub("", text.strip().strip("\"'"))
    if not is_framework(component):
        label = _cuda_label(component, whole, package)
        plain = re.split(r"[-+~]", whole, maxsplit=1)[0]
        if component == "cuda":
            plain = ".".join(plain.split(".")[:3])  # the fourth part is a build number
        whole = plain + label
    return whole if is_version(component, whole) else None


def _cuda_label(component: str, whole: str, package: str) -> str:
    """Return ``+cu118`` for the CUDA that the version or the package's name states."""
    if component not in BUILT_PER_CUDA:
        return ""
    if match := _LOCAL.search(whole):
        return match[0]
    match = _CUDA.search(whole.partition("+")[2] or whole.partition("-")[2])
    match = match or _CUDA.search(package)
    return f"+cu{match[1]}{match[2] or ''}" if match else ""
