"""Frameworks, from ``frameworks/NAME.yaml``: one format, whatever a project publishes.

A source counts for everything below it: what a build, a pin or a list of architectures does not
say of itself is what the release says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec.structs import replace

from compatgate.catalog.build import pins
from compatgate.catalog.build.read import (
    Record,
    ascending,
    drivers,
    gpu_code,
    of,
    pair,
    pairs,
    version,
)
from compatgate.core.arch import Arch, parse_arch
from compatgate.core.facts import Build, Framework, Pair, Pin, Release, Source

_SYSTEMS = ("linux", "windows")


def framework(document: Record) -> Framework:
    """Read every release of a framework, with its builds."""
    name = document["component"]
    releases = ascending(_release(name, record) for record in document["releases"])
    return Framework(
        name,
        releases,
        os=tuple(document.get("os", _SYSTEMS)),
        cpu_only_os=tuple(document.get("cpu_only_os", ())),
    )


def _release(name: str, record: Record) -> Release:
    told = of(record)
    python = record.get("python")
    return Release(
        version=version(name, record["version"]),
        builds=tuple(_build(build, record, told) for build in record["builds"]),
        source=told,
        python=tuple((python or {}).get("wheels", ())),
        python_aarch64=tuple((python or {}).get("wheels_aarch64", ())),
        python_range=_range(python or {}),
        python_source=_own(python, told) if python else None,
        cpu_only=tuple(record.get("cpu_only", ())),
        pins=_pins(record, told),
        note=record.get("note") or "",
        os=tuple(record.get("os", ())),
        requires=tuple(t for group in record.get("requirements", ()) for t in group["packages"]),
        requires_source=next((_own(group, told) for group in record.get("requirements", ())), None),
        conda=tuple(_of_channel(build, told) for build in record.get("conda", ())),
    )


def _range(python: Record) -> tuple[str | None, str | None]:
    """The lowest and highest Python, where no list of wheels says it."""
    return (python.get("min"), python.get("max"))


def _build(build: Record, release: Record, above: Source) -> Build:
    told = _own(build, above)
    code = build.get("code")
    minimum = build.get("minimum_capability") or release.get("minimum_capability")
    return Build(
        cuda=_pair(build.get("cuda")),
        cuda_major=_major(build["accepts"]),
        accepts=build["accepts"],
        source=told,
        label=build.get("label"),
        default=build.get("default", False),
        listed=build.get("listed", True),
        sass=pairs(code["sass"]) if code else None,
        ptx=pairs(code["ptx"]) if code else None,
        specific=_specific(code),
        aarch64=gpu_code(build["code_aarch64"]) if build.get("code_aarch64") else None,
        windows=gpu_code(build["code_windows"]) if build.get("code_windows") else None,
        ptx_cuda=_pair((code or {}).get("ptx_cuda")),
        minimum_capability=_pair((minimum or {}).get("value")),
        pins=_pins(build, told),
        driver=drivers(**_per_system(build.get("driver"))),
        plugins=tuple(build.get("packages") or ()),
        requires=tuple(text for group in _required(build) for text in group["packages"]),
        requires_source=next((_own(group, told) for group in _required(build)), None),
        arch_source=_stated(code) or _stated(minimum),
        note=build.get("note") or "",
    )


def _of_channel(build: Record, above: Source) -> Build:
    """Read a build by a channel of conda; its recipe states no more than CUDA and GPU code."""
    accepts = f"{build['cuda']}.*"
    return replace(_build({**build, "accepts": accepts}, {}, above), channel=build["channel"])


def _required(build: Record) -> list[Record]:
    """Return what the wheel always requires; an extra is the installer's choice."""
    return [group for group in build.get("requirements", ()) if "extra" not in group]


def _own(record: Record, above: Source) -> Source:
    """The source of a part, or that of what it is a part of."""
    return _stated(record) or above


def _stated(record: Record | None) -> Source | None:
    return of(record) if record and record.get("source") else None


def _pair(text: str | None) -> Pair | None:
    return pair(text) if text else None


def _major(accepts: str) -> int:
    """The CUDA major that a build is for: the first number of what it accepts."""
    found = re.search(r"\d+", accepts)
    if not found:
        raise ValueError(f"{accepts!r} names no CUDA major")
    return int(found[0])


def _specific(code: Record | None) -> tuple[Arch, ...]:
    named = (code or {}).get("specific", ())
    return tuple(arch for text in named for arch in parse_arch(text))


def _per_system(driver: Record | None) -> Mapping[str, str]:
    return {name: text for name, text in (driver or {}).items() if name in _SYSTEMS}


def _pins(record: Record, above: Source) -> dict[str, Pin]:
    stated = record.get("pins") or {}
    return {name: pins.read(name, pin, _own(pin, above)) for name, pin in stated.items()}
