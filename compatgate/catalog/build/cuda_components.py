"""Versions of the libraries of each CUDA toolkit, from ``cuda_components.yaml``."""

from __future__ import annotations

from compatgate.catalog.build.read import Record, of, pair
from compatgate.core.facts import Pair
from compatgate.core.facts.components import CudaComponents, Link, ToolkitPart


def cuda_components(document: Record) -> CudaComponents:
    """Read which toolkits each release of each library belongs to, by the package that holds it."""
    return CudaComponents(
        parts=tuple(
            ToolkitPart(
                name, row["component"], int(major), _toolkits(row["component"], major, document)
            )
            for row in document["packages"]
            for major, name in row["names"].items()
        ),
        links=tuple(
            Link(row["component"], tuple(row["users"]), row["statement"], of(row))
            for row in document.get("links") or ()
        ),
        source=of(document["packages"][0]),
    )


def _toolkits(component: str, major: str, document: Record) -> dict[str, tuple[Pair, ...]]:
    """Map each version of a component to the toolkits of a CUDA major that have it, ascending."""
    found: dict[str, set[Pair]] = {}
    for release in document["releases"]:
        version = release["components"].get(component)
        if version and release["cuda"].startswith(f"{major}."):
            found.setdefault(version, set()).add(pair(release["cuda"]))
    for patch in document.get("patches") or ():
        if patch["component"] == component and patch["cuda"].startswith(f"{major}."):
            found.setdefault(patch["version"], set()).add(pair(patch["cuda"]))
    return {version: tuple(sorted(pairs)) for version, pairs in found.items()}
