"""Packages of the index, from ``components.yaml``."""

from __future__ import annotations

from compatgate.catalog.build.read import Record, of
from compatgate.catalog.build.vocabulary import check_vocabulary
from compatgate.core.facts.packages import KnownPackage, NamePattern, Packages
from compatgate.core.versions import parse_version


def components(document: Record) -> Packages:
    """Read what packages carry, and what names mean.

    Raises:
        BadInput: the components are not those of this program.
    """
    if "components" in document:
        check_vocabulary(document["components"])
    return Packages(
        packages=tuple(_package(record) for record in document["packages"]),
        names=tuple(
            NamePattern(record["pattern"], record["why"], of(record))
            for record in document["names"]
        ),
    )


def _package(record: Record) -> KnownPackage:
    exact_before = record.get("exact_before")
    return KnownPackage(
        name=record["name"],
        carries=record["carries"],
        source=of(record),
        optional=bool(record.get("optional")),
        gpus=record.get("gpus") or "",
        note=record.get("note") or "",
        exact_before=parse_version(record["name"], exact_before) if exact_before else None,
    )
