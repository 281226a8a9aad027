"""What says which packages there are: lockfiles and bills of materials."""

from __future__ import annotations

from typing import Any

from known_packages import PACKAGES

from compatgate.check.stack_sources import places_of
from compatgate.discovery.lockfiles.platform import Platform
from compatgate.discovery.lockfiles.read import read_lockfile
from compatgate.discovery.sbom.read import read_sbom
from targets.target import DISCOVERY, Target, by_name, published


def targets() -> dict[str, Target]:
    """Readers of lockfiles and of bills of materials."""
    return {**_lockfiles(), **_sboms()}


def _lockfiles() -> dict[str, Target]:
    platform = Platform("linux", "x86_64", "3.11")

    def read(name: str, data: bytes) -> Any:
        reading = read_lockfile(name, data, known=PACKAGES, platform=platform)
        assert reading.observations or reading.open
        return reading

    named = by_name(DISCOVERY / "lockfiles" / "files", read)
    samples = [sample for target in named.values() for sample in target.samples]

    def placed(data: bytes) -> object:
        name = "standard input"  # the content says what it is
        observations = read(name, data).observations
        places = places_of("-", name, data, observations)
        assert len(places) == len({seen.component for seen in observations})
        return places

    return {**named, "lock on standard input": Target(placed, samples)}


def _sboms() -> dict[str, Target]:
    def read(name: str, data: bytes) -> object:
        reading = read_sbom(name, data, known=PACKAGES, signals=published())
        assert reading.observations or reading.open or reading.rest
        return reading

    return by_name(DISCOVERY / "sbom" / "files", read)
