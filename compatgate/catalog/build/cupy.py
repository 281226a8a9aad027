"""CuPy releases, from ``cupy.yaml``: the packages of one version are builds of one release."""

from __future__ import annotations

from compatgate.catalog.build import pins
from compatgate.catalog.build.read import Record, ascending, of, pair, version
from compatgate.core.facts import Build, Framework, Pin, Release


def cupy(document: Record) -> Framework:
    """Group ``cupy-cuda11x``, ``cupy-cuda12x`` and ``cupy-cuda13x`` by version."""
    grouped: dict[str, list[Record]] = {}
    for record in document["releases"]:
        grouped.setdefault(record["version"], []).append(record)
    return Framework("cupy", ascending(_release(text, rows) for text, rows in grouped.items()))


def _release(text: str, packages: list[Record]) -> Release:
    newest = max(packages, key=lambda package: package["cuda_major"])
    wheels = {python for package in packages for python in package["python_wheels_linux_x86_64"]}
    python = sorted(wheels, key=lambda tag: version("python", tag).key)
    return Release(
        version=version("cupy", text),
        builds=tuple(_build(package) for package in packages),
        source=of(newest),
        python=tuple(python),
        python_source=of(newest),
    )


def _build(package: Record) -> Build:
    """A newer minor of the package's major than documented is not refused."""
    low, major = pair(package["cuda_min"]), package["cuda_major"]
    only = package.get("cuda_only")
    return Build(
        cuda=pair(only) if only else None,
        cuda_major=major,
        accepts=f"{low[0]}.{low[1]}.*" if only else f">={low[0]}.{low[1]},<{major + 1}",
        source=of(package),
        pins=_pins(package),
        note=package["package"],
    )


def _pins(package: Record) -> dict[str, Pin]:
    """Both libraries are optional; the page names the minors that were tested."""
    named = {"cudnn": package["cudnn_documented"], "nccl": package["nccl_documented"]}
    return {
        name: pins.documented(name, minors, of(package)) for name, minors in named.items() if minors
    }
