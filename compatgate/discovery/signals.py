"""The published signals (``matrix/facts/image_signals.yaml``) in the form that readers use.

The table says which variable, label and package tells which component, and how far each is to be
trusted; here is only how the table itself is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from compatgate.core.components import find_component
from compatgate.discovery.observed import Confidence

CUDA_COMPAT = "cuda-compat"
COMPAT_USE = "cuda-compat-use"
_SPECIAL = {
    "cuda-compat present": CUDA_COMPAT,
    "cuda-compat": CUDA_COMPAT,
    "bundled compat driver": "compat-driver",
    "compiled compute capabilities": "arch",
    "driver requirement": "require",
}
_TRUST: dict[str, Confidence] = {"high": "metadata", "medium": "derived"}
_OF_VENDOR = re.compile(r"NV(?:IDIA)?_|com\.nvidia\.")


class Signal(Struct, frozen=True):
    """A variable or label that tells something.

    Attributes:
        component: canonical name, or ``cuda-compat``, ``compat-driver``, ``arch``, ``require``.
        confidence: None when what it says is not to be believed.
        families: of images that carry it.
        vendors: only NVIDIA's own builds set a variable of this name.
    """

    name: str
    component: str
    confidence: Confidence | None
    families: tuple[str, ...]
    vendors: bool


class PackagePattern(Struct, frozen=True):
    """Names of a distribution's packages that tell a component."""

    pattern: re.Pattern[str]
    component: str


class Signals(Struct, frozen=True):
    """All that is published on what images say of themselves.

    Attributes:
        conda: package name to component.
        ignored: variables that look like a requirement and are none.
    """

    environment: tuple[Signal, ...]
    labels: tuple[Signal, ...]
    packages: tuple[PackagePattern, ...]
    conda: dict[str, str]
    ignored: frozenset[str]

    def package(self, name: str) -> str | None:
        """The component that a dpkg, rpm or apk package tells, None when none."""
        for known in self.packages:
            if known.pattern.fullmatch(name):
                return known.component
        return None


def read_signals(document: Mapping[str, Any]) -> Signals:
    """Compile the fact file.

    Args:
        document: ``image_signals`` as the catalog gives it.
    """
    on_disk = document["on_disk"]
    environment = document["environment"]
    return Signals(
        environment=tuple(_signals(environment)),
        labels=tuple(_signals(document["labels"])),
        packages=tuple(_patterns([*on_disk["dpkg"], *on_disk["rpm"]])),
        conda=dict(_conda(on_disk["conda"])),
        ignored=frozenset(e["name"] for e in environment if e["component"] == "none"),
    )


def _signals(rows: Iterable[Mapping[str, Any]]) -> Iterable[Signal]:
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
            vendors=trust in _TRUST and _OF_VENDOR.match(row["name"]) is not None,
        )


def _patterns(rows: Iterable[Mapping[str, Any]]) -> Iterable[PackagePattern]:
    for row in rows:
        component = _component(str(row["component"]))
        if component is not None:
            yield PackagePattern(_pattern(row["name"]), component)


def _pattern(name: str) -> re.Pattern[str]:
    """``cuda-cudart-MAJOR-MINOR``; the number of a soname, ``libcudnn8``, may be another."""
    text = re.sub(r"(?<=[a-z])\d+$", r"\\d+", re.escape(name))
    text = re.sub(r"(?<=[a-z])\d+(?=\\-)", r"\\d+", text)
    return re.compile(text.replace("MAJOR", r"\d+").replace("MINOR", r"\d+"))


def _conda(rows: Iterable[Mapping[str, Any]]) -> Iterable[tuple[str, str]]:
    for row in rows:
        component = _component(str(row["component"]))
        for name in re.split(r",\s*", row["name"]) if component else ():
            yield name, str(component)


def _component(text: str) -> str | None:
    """``nccl and its CUDA build`` is nccl, ``cuda, cudart`` is cuda; None for what is no part."""
    if text in _SPECIAL:
        return _SPECIAL[text]
    first = re.split(r", | and | of | \(", text, maxsplit=1)[0]
    found = find_component(first.replace(" ", ""))
    return found.component.name if found else None
