"""Check platforms, their machines and Jetson's releases against the other fact files."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

from compatgate.catalog.references import Check, Context, Problem
from compatgate.core.facts.jetson import Jetson, in_series
from compatgate.core.versions import format_parts


def jetson_devices(context: Context) -> Iterator[Problem]:
    """Check that each Jetson GPU is of one device, whose platform has the same GPUs."""
    facts, table = context.facts, context.facts.jetson
    of_devices = [gpu for device in table.devices for gpu in device.gpus]
    for gpu in facts.gpus.gpus.values():
        if gpu.segment == "jetson" and of_devices.count(gpu.name) != 1:
            yield Problem("jetson-devices", f"gpus {gpu.name}", "is not of one device")
    for device in table.devices:
        subject = f"jetson devices[name={device.name}]"
        platform = facts.platforms.platforms.get(device.platform)
        if platform is None or set(platform.gpus) != set(device.gpus):
            yield Problem("jetson-devices", subject, f"{device.platform} has other GPUs")
        for name in device.gpus:
            known = facts.gpus.gpus.get(name)
            if known is None or known.capability != device.capability:
                capability = format_parts(device.capability)
                yield Problem("jetson-devices", subject, f"{name} is no GPU of {capability}")
        if all(one.device != device.name for one in table.sbsa):
            yield Problem("jetson-devices", subject, "no record states whether it runs SBSA builds")


def jetson_releases(context: Context) -> Iterator[Problem]:
    """Check that a release's CUDA is known, and that one driver or JetPack means one CUDA."""
    facts, table = context.facts, context.facts.jetson
    by_driver: dict[str, set[str]] = {}
    for release in table.releases:
        cuda, subject = format_parts(release.cuda), f"jetson releases[l4t={release.l4t}]"
        if release.cuda not in facts.toolkits_of:
            yield Problem("jetson-releases", subject, f"CUDA {cuda} is not a known toolkit")
        for name in (release.driver and f"driver {release.driver}", f"JetPack {release.jetpack}"):
            if name:
                by_driver.setdefault(name, set()).add(cuda)
        if table.upgrade_of(release.l4t) is None:
            yield Problem("jetson-releases", subject, "no upgrade of this release is listed")
        capabilities = {one.name: one.capability for one in table.devices}
        for device in release.devices or ():
            if device not in capabilities:
                yield Problem("jetson-releases", subject, f"{device} is no device")
                continue
            known = facts.arch.capabilities.get(format_parts(capabilities[device]))
            if known and known.last_toolkit and release.cuda > known.last_toolkit:
                yield Problem("jetson-releases", subject, f"CUDA {cuda} dropped {device}")
    for name, cudas in by_driver.items():
        if len(cudas) > 1:
            listed = " and ".join(sorted(cudas))
            yield Problem("jetson-releases", f"jetson {name}", f"means CUDA {listed}")


def jetson_upgrades(context: Context) -> Iterator[Problem]:
    """Check the tables of upgrades, libcudas and wheels against the releases."""
    table = context.facts.jetson
    for upgrade in table.upgrades:
        subject = f"jetson upgrades[l4t={upgrade.series}]"
        for cuda in upgrade.compatible:
            text = format_parts(cuda)
            if cuda not in context.facts.toolkits_of:
                yield Problem("jetson-upgrades", subject, f"CUDA {text} is not a known toolkit")
            if text in upgrade.disputed:
                yield Problem("jetson-upgrades", subject, f"CUDA {text} is listed and disputed")
        if upgrade.compatible and not upgrade.package:
            yield Problem("jetson-upgrades", subject, "names no package")
    for runs in table.runs:
        subject = f"jetson runs[l4t={runs.series},libcuda={format_parts(runs.libcuda)}]"
        if both := set(runs.runs) & set(runs.refuses):
            yield Problem("jetson-upgrades", subject, f"runs and refuses {sorted(both)}")
        if runs.libcuda not in _libcudas(table, runs.series):
            yield Problem("jetson-upgrades", subject, "no release and no package brings it")
    for wheels in table.wheels:
        for series in wheels.series:
            if not any(in_series(one.l4t, series) for one in table.releases):
                subject = f"jetson wheels[index={wheels.index}]"
                yield Problem("jetson-upgrades", subject, f"no release is of {series}")


def _libcudas(table: Jetson, series: str) -> set[tuple[int, int]]:
    """Return the CUDA releases of libcuda on a series: its own and those of packages."""
    own = {one.cuda for one in table.releases if in_series(one.l4t, series)}
    return own | {cuda for one in table.upgrades if one.series == series for cuda in one.compatible}


def machine_order(context: Context) -> Iterator[Problem]:
    """Check that every pattern of an instance type can decide: no earlier one fits all of it."""
    seen: list[str] = []
    for machine in context.facts.platform_machines.machines:
        patterns = [one for condition in machine.recognise for one in condition.instance_type]
        for pattern in patterns:
            if hidden := next((one for one in seen if fnmatchcase(pattern, one)), None):
                what = f"{pattern} never decides: {hidden} comes first"
                yield Problem("machine-order", f"platform_machines {machine.platform}", what)
        seen += patterns


CHECKS: tuple[Check, ...] = (
    jetson_devices,
    jetson_releases,
    jetson_upgrades,
    machine_order,
)
