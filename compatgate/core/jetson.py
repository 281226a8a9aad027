"""Judge a Jetson by its L4T release: what its libcuda is, and what runs on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from compatgate.core.facts.nvidia import CompatPackage, Pair, Source
from compatgate.core.stack_facts import ForwardCompatUse
from compatgate.core.versions import Version, agree, format_parts, parse_version

if TYPE_CHECKING:
    from compatgate.core.facts.jetson import Jetson, JetsonDevice, JetsonRelease, Upgrade
    from compatgate.core.request import Pool
    from compatgate.core.stack import Stack

FIRST_DRIVER = 100
"""Lower numbers of a driver are those of L4T: up to JetPack 5 its libraries carry them."""


class JetsonHost(Struct, frozen=True):
    """The software of a pool's Jetsons, as stated."""

    table: Jetson
    # None where only a compute capability is known that several devices have
    device: JetsonDevice | None
    # the L4T releases that fit what is stated; empty: none is known
    releases: tuple[JetsonRelease, ...]
    unknown: str = ""  # why no release is known; empty where one is

    @property
    def release(self) -> JetsonRelease | None:
        """Return the newest release that fits."""
        return self.releases[-1] if self.releases else None

    @property
    def cuda(self) -> Pair | None:
        """Return the CUDA of the libcuda; None where it is not known."""
        found = {release.cuda for release in self.releases}
        return found.pop() if len(found) == 1 else None

    @property
    def device_name(self) -> str:
        """Return the name of the device; empty where it is not known."""
        return self.device.name if self.device else ""

    @property
    def title(self) -> str:
        """Return the release, for messages: ``L4T 36.4.3 (JetPack 6.2)``."""
        if len(self.releases) == 1:
            return self.releases[0].title
        if not self.releases:
            return "an L4T release that is not known"
        return f"L4T {self.releases[0].l4t} to {self.releases[-1].l4t}"

    @property
    def upgrade(self) -> Upgrade | None:
        """Return what upgrades the release."""
        return self.table.upgrade_of(self.release.l4t) if self.release else None


def describe_jetson(pool: Pool, table: Jetson) -> JetsonHost:
    """Return the device and the L4T release of a pool of Jetsons.

    The release is stated (``node.l4t``), else that of the JetPack (``node.jetpack``), else it
    follows from the driver: 540.4.0 is that of JetPack 6.2, 580.00 of JetPack 7.0 and 7.1.
    """
    gpu = pool.gpu
    device = table.device_of(gpu.name, gpu.capability) if gpu else None
    l4t, jetpack = pool.node_version("l4t"), pool.node_version("jetpack")
    if l4t is None and jetpack is None and pool.driver and pool.driver.major < FIRST_DRIVER:
        l4t = pool.driver
    if l4t is not None:
        found = tuple(one for one in table.releases if one.l4t.at(3) == l4t.at(3))
        missing = f"L4T {l4t} is not known; the newest known is {table.releases[-1].l4t}"
        return JetsonHost(table, device, found, "" if found else missing)
    driver = pool.driver
    if jetpack is not None:
        found = tuple(one for one in table.releases if one.jetpack.at(3) == jetpack.at(3))
        narrowed = tuple(one for one in found if driver and one.driver == driver)
        newest = max(table.releases, key=lambda one: one.jetpack.key).jetpack
        missing = f"JetPack {jetpack} is not known; the newest known is {newest}"
        return JetsonHost(table, device, narrowed or found, "" if found else missing)
    if driver is None:
        return JetsonHost(table, device, (), "neither driver nor L4T release is stated")
    found = tuple(one for one in table.releases if one.driver == driver)
    known = dict.fromkeys(str(one.driver) for one in table.releases if one.driver)
    missing = f"no L4T release reports driver {driver}: they report {', '.join(known)}"
    return JetsonHost(table, device, found, "" if found else missing)


def driver_of_release(release: JetsonRelease) -> Version:
    """Return the number of a release's driver: up to JetPack 5, that of L4T itself."""
    return release.driver or release.l4t


def has_index(host: JetsonHost, name: str, label: str) -> bool:
    """Return whether the index that a label names has wheels with code for this device."""
    release, device = host.release, host.device
    if release is None or device is None:
        return False
    return any(
        wheels.label == label and device.capability in wheels.code
        for wheels in host.table.wheels_of(name, release.l4t, device.name)
    )


def ships_tensorrt(host: JetsonHost, version: Version) -> bool:
    """Return whether a TensorRT is the one that all L4T releases of the host ship."""
    shipped = {parse_version("tensorrt", one.tensorrt) for one in host.releases if one.tensorrt}
    return bool(shipped) and all(agree(version, one) for one in shipped)


def like_wheel(host: JetsonHost, name: str, version: Version) -> tuple[str, Source] | None:
    """Return which of NVIDIA's wheels for this device a build is, or is like, and its source.

    Wheels of one minor that are listed for an L4T release differ in their month alone.
    """
    release, device = host.release, host.device
    if release is None or device is None:
        return None
    listed = [
        (text, parse_version(name, text), wheels.source)
        for wheels in host.table.wheels_of(name, release.l4t, device.name)
        for text in wheels.versions
        if device.capability in wheels.code
    ]
    same = next((one for one in listed if one[1].local == version.local), None)
    like = [one for one in listed if one[1].major_minor == version.major_minor]
    text, _, source = same or (like[-1] if like else (None, None, None))
    return (text, source) if text and source else None


Match = Literal["same", "older", "minor", "refused", "not-published"]


def match_toolkit(host: JetsonHost, libcuda: Pair, toolkit: Pair) -> tuple[Match, Source | None]:
    """Return how a libcuda of a Jetson runs the programs of a toolkit, and who says so.

    Returns:
        ``older``: the toolkit is older than the libcuda; ``minor``: it is newer, and covered by
        minor-version compatibility.
    """
    if toolkit <= libcuda:
        return ("same" if toolkit == libcuda else "older"), None
    release, upgrade = host.release, host.upgrade
    if release is None or upgrade is None:
        return "not-published", None
    table = host.table.runs_of(release.l4t, libcuda)
    if table and toolkit in table.runs:
        return "minor", table.source
    if table and toolkit in table.refuses:
        return "refused", table.source
    if toolkit[0] != libcuda[0]:
        return "refused", upgrade.source
    return ("minor" if toolkit in upgrade.compatible else "not-published"), upgrade.source


def check_jetson_compat(stack: Stack, host: JetsonHost) -> ForwardCompatUse:
    """Return whether the stack's upgrade package (``cuda-compat``) is usable on a Jetson.

    Source: CUDA for Tegra application note, "Use the Right Upgrade Package".
    """
    assert stack.cuda_compat is not None  # noqa: S101 - the caller checked
    cuda = stack.cuda_compat.major_minor
    series = format_parts(cuda)
    upgrade, own = host.upgrade, host.cuda
    if upgrade is None or own is None:
        return ForwardCompatUse(None, host.unknown or "its L4T release is not known", "l4t=...")
    package = CompatPackage(cuda, None, 0, (), {}, {}, upgrade.source)
    listed = ", ".join(map(format_parts, upgrade.compatible))
    need = f"cuda-compat of {listed}" if listed else "no cuda-compat"
    if cuda <= own:
        why = f"{host.title} has its own CUDA {format_parts(own)}"
        aside = stack.compat_use in ("newer", "tried")
        return ForwardCompatUse(False, why, need, upgrade.source, package, aside=aside)
    if told := upgrade.disputed.get(series):
        return ForwardCompatUse(None, told.text, need, told.source, package)
    if cuda not in upgrade.compatible:
        why = f"{host.title} has no upgrade package of CUDA {series}"
        aside = stack.compat_use == "tried"
        return ForwardCompatUse(False, why, need, upgrade.source, package, aside=aside)
    return ForwardCompatUse(True, source=upgrade.source, package=package)
