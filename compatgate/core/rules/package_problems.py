"""What the rules about packages say alike: which wheel is assumed, its source, other releases."""

from __future__ import annotations

from collections.abc import Iterator

from compatgate.core.case import Case
from compatgate.core.facts import Source
from compatgate.core.packages import GpuPackage
from compatgate.core.rules.base import Candidate
from compatgate.core.verdict import FindingOutcome


def when_open(case: Case) -> FindingOutcome:
    """Return what the target's policy makes of a package that is not known."""
    return "warn" if case.policy.packages == "audit" else "unknown"


def assumption(package: GpuPackage) -> str:
    """Say which wheel a package is taken to be, where nothing names its file."""
    return f" ({package.assumed})" if package.assumed else ""


def source_of(package: GpuPackage) -> Source | None:
    """Return what is known of a package as a source: its record, else what is stated of it."""
    record = package.record
    if record is None or not (record.wheel or package.installed):
        stated = sorted(package.statements, key=lambda one: not (record and one.wheels))
        return stated[0].source if stated else None
    if package.installed:
        what = f" ({record.wheel})" if record.wheel else ""
        return Source(f"measured: its installed files{what}", confidence="metadata")
    proof = f", sha256 {record.sha256[:16]}" if record.sha256 else ""
    return Source(f"measured: {record.wheel}{proof}", confidence="metadata")


def other_releases(case: Case, package: GpuPackage) -> Iterator[Candidate]:
    """Offer other releases with a record, the nearest newer one first."""
    known = list(case.facts.recorded_versions(package.name))
    newer = [version for version in known if version > package.version]
    for version in (*newer, *reversed([v for v in known if v < package.version])):
        text = version.text
        yield Candidate({package.name: text}, f"use {package.name} {text}")
