"""Build platforms, the machines that tell them, and Jetson's releases.

Sources: ``platforms.yaml``, ``platform_machines.yaml`` and ``jetson.yaml``.
"""

from __future__ import annotations

from typing import Any

from compatgate.catalog.build.values import Record, driver, pair, pairs, record_source
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
    Image,
    Limit,
    Platform,
    Platforms,
    Told,
)
from compatgate.core.node import parse_node_version
from compatgate.core.versions import Version


def platforms(document: Record) -> Platforms:
    """Build platforms, their limits and their images."""
    found = [_platform(record) for record in document["platforms"]]
    return Platforms(
        {one.name: one for one in found},
        tuple(_limit(record) for record in document["limits"]),
        tuple(_image(record) for record in document["images"]),
    )


def _platform(record: Record) -> Platform:
    return Platform(
        name=record["name"],
        title=record["title"],
        source=record_source(record),
        gpus=tuple(record.get("gpus", ())),
        gpus_per_node=tuple(record.get("gpus_per_node", ())),
        cpu=record.get("cpu", ""),
        os=tuple(record["os"]),
        network=record.get("network", ""),
        note=record.get("note", ""),
    )


def _limit(record: Record) -> Limit:
    return Limit(
        id=record["id"],
        platforms=tuple(record["platforms"]),
        component=record["component"],
        severity=record["severity"],
        means=record["means"],
        source=record_source(record),
        minimum=_bound(record, "minimum"),
        below=_bound(record, "below"),
        maximum=_bound(record, "maximum"),
        refuses=tuple(record.get("refuses", ())),
        advised=record.get("advised", ""),
        uses=record.get("uses", ""),
        note=record.get("note", ""),
        disputed=_told(record["disputed"]) if "disputed" in record else None,
    )


def _bound(record: Record, name: str) -> Version | None:
    if name not in record:
        return None
    text = record[name]
    return driver(text) if record["component"] == "driver" else parse_node_version(text)


def _told(record: Record) -> Told:
    return Told(record["text"], record_source(record))


def _image(record: Record) -> Image:
    return Image(
        platforms=tuple(record["platforms"]),
        image=record["image"],
        release=record.get("release", ""),
        driver=driver(record["driver"]) if "driver" in record else None,
        source=record_source(record),
    )


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
    devices = record["devices"]
    return JetsonRelease(
        l4t=parse_node_version(record["l4t"]),
        jetpack=parse_node_version(record["jetpack"]),
        cuda=pair(record["cuda"]),
        driver=_optional_driver(record["driver"]),
        source=record_source(record),
        devices=None if devices is None else tuple(devices),
        cudnn=record["cudnn"] or "",
        tensorrt=record["tensorrt"] or "",
        preview=record["stage"] == "preview",
        note=record.get("note", ""),
    )


def _optional_driver(text: Any) -> Version | None:
    return driver(text) if text else None


def _device(record: Record) -> JetsonDevice:
    return JetsonDevice(
        name=record["name"],
        title=record["title"],
        capability=pair(record["capability"]),
        soc=record["soc"],
        platform=record["platform"],
        gpus=tuple(record["gpus"]),
        source=record_source(record),
        parts=tuple(record["parts"]),
        last_jetpack=record["last_jetpack"] or "",
    )


def _upgrade(record: Record) -> Upgrade:
    return Upgrade(
        series=record["l4t"],
        compatible=pairs(record["compatible"]),
        incompatible=record["incompatible"] or "",
        package=record["package"] or "",
        source=record_source(record),
        packages=dict(record.get("packages", {})),
        disputed={cuda: _told(told) for cuda, told in record.get("disputed", {}).items()},
    )


def _runs(record: Record) -> Runs:
    return Runs(
        series=record["l4t"],
        libcuda=pair(record["libcuda"]),
        runs=pairs(record["runs"]),
        refuses=pairs(record["refuses"]),
        source=record_source(record),
    )


def _sbsa(record: Record) -> Sbsa:
    since = record["from_l4t"]
    return Sbsa(
        device=record["device"],
        since=parse_node_version(since) if since else None,
        text=record["text"],
        source=record_source(record),
    )


def _wheels(record: Record) -> Wheels:
    return Wheels(
        package=record["package"],
        series=tuple(record["l4t"]),
        devices=tuple(record["devices"]),
        index=record["index"],
        fits=record["fits"],
        source=record_source(record),
        versions=tuple(record["versions"]),
        label=record.get("label", ""),
        range=record["range"] or "",
        code=pairs(record["code"]),
    )


def _dispute(record: Record) -> Dispute:
    return Dispute(
        device=pair(record["device"]),
        code=pairs(record["code"]),
        libcuda=pair(record["libcuda"]) if record["libcuda"] else None,
        text=record["text"],
        source=record_source(record),
    )
