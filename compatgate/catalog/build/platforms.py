"""Build platforms, the machines that tell them, and Jetson's releases.

Sources: ``platforms.yaml``, ``platform_machines.yaml`` and ``jetson.yaml``.
"""

from __future__ import annotations

from typing import Any

from compatgate.catalog.build.values import Record, driver, fill, pair, pairs, record_source
from compatgate.core.facts.jetson import (
    Dispute,
    Jetson,
    JetsonDevice,
    JetsonRelease,
    Runs,
    Sbsa,
    Upgrade,
    Wheels,
)
from compatgate.core.facts.machines import Condition, Machine, PlatformMachines
from compatgate.core.facts.platforms import (
    Claim,
    Image,
    Limit,
    Platform,
    Platforms,
)
from compatgate.core.node import parse_node_version
from compatgate.core.versions import Version


def platforms(document: Record) -> Platforms:
    """Build platforms, their limits and their images."""
    found = [fill(Platform, record) for record in document["platforms"]]
    return Platforms(
        {one.name: one for one in found},
        tuple(_limit(record) for record in document["limits"]),
        tuple(_image(record) for record in document["images"]),
    )


def _limit(record: Record) -> Limit:
    return fill(
        Limit,
        record,
        **{name: _bound(record, name) for name in ("minimum", "below", "maximum")},
        disputed=fill(Claim, record["disputed"]) if "disputed" in record else None,
    )


def _bound(record: Record, name: str) -> Version | None:
    if name not in record:
        return None
    text = record[name]
    return driver(text) if record["component"] == "driver" else parse_node_version(text)


def _image(record: Record) -> Image:
    release = record.get("release", "")
    return fill(Image, record, release=release, driver=_optional_driver(record.get("driver")))


def platform_machines(document: Record) -> PlatformMachines:
    """Build the machines, in the order of the file."""
    return PlatformMachines(tuple(map(_machine, document["machines"])))


def _machine(record: Record) -> Machine:
    conditions = (
        Condition(**{name: tuple(patterns) for name, patterns in condition.items()})
        for condition in record["recognise"]
    )
    return Machine(record["platform"], tuple(conditions), record_source(record))


def jetson(document: Record) -> Jetson:
    """Build the releases of Jetson, with what runs on each and the wheels that fit."""
    releases = [_release(record) for record in document["releases"]]
    return Jetson(
        releases=tuple(sorted(releases, key=lambda one: one.l4t.key)),
        devices=tuple(_device(record) for record in document["devices"]),
        upgrades=tuple(_upgrade(record) for record in document["upgrades"]),
        runs=tuple(_runs(record) for record in document["runs"]),
        sbsa=tuple(_sbsa(record) for record in document["sbsa"]),
        wheels=tuple(_wheels(record) for record in document["wheels"]),
        disputes=tuple(_dispute(record) for record in document["disputes"]),
    )


def _release(record: Record) -> JetsonRelease:
    return fill(
        JetsonRelease,
        record,
        l4t=parse_node_version(record["l4t"]),
        jetpack=parse_node_version(record["jetpack"]),
        cuda=pair(record["cuda"]),
        driver=_optional_driver(record["driver"]),
        preview=record["stage"] == "preview",
    )


def _optional_driver(text: Any) -> Version | None:
    return driver(text) if text else None


def _device(record: Record) -> JetsonDevice:
    return fill(JetsonDevice, record, capability=pair(record["capability"]))


def _upgrade(record: Record) -> Upgrade:
    return fill(
        Upgrade,
        record,
        series=record["l4t"],
        compatible=pairs(record["compatible"]),
        incompatible=record["incompatible"] or "",
        package=record["package"] or "",
        disputed={cuda: fill(Claim, told) for cuda, told in record.get("disputed", {}).items()},
    )


def _runs(record: Record) -> Runs:
    return fill(
        Runs,
        record,
        series=record["l4t"],
        libcuda=pair(record["libcuda"]),
        runs=pairs(record["runs"]),
        refuses=pairs(record["refuses"]),
    )


def _sbsa(record: Record) -> Sbsa:
    since = record["from_l4t"]
    return fill(Sbsa, record, since=parse_node_version(since) if since else None)


def _wheels(record: Record) -> Wheels:
    return fill(Wheels, record, series=tuple(record["l4t"]), code=pairs(record["code"]))


def _dispute(record: Record) -> Dispute:
    return fill(
        Dispute,
        record,
        device=pair(record["device"]),
        code=pairs(record["code"]),
        libcuda=pair(record["libcuda"]) if record["libcuda"] else None,
    )
