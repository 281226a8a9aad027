"""Hold JetPack and L4T releases, what runs on them, and the wheels that fit.

A Jetson is judged by its L4T release: its driver numbers are none of the data center's (540.4.0
holds CUDA 12.6, 580.00 holds CUDA 13.0).
"""

from __future__ import annotations

from functools import cached_property

from msgspec import Struct

from compatgate.core.facts.nvidia import Driver, NodeVersion, Pair, Source
from compatgate.core.facts.platforms import Claim
from compatgate.core.versions import Version


class JetsonRelease(Struct, frozen=True):
    """A release of Jetson Linux (L4T), which one JetPack number may share with others."""

    l4t: NodeVersion
    jetpack: NodeVersion
    cuda: Pair
    driver: Driver | None  # the number that nvidia-smi prints; None: it is not there, or not found
    source: Source
    devices: tuple[str, ...] | None = None  # names of the devices that it supports; None: not found
    cudnn: str = ""
    tensorrt: str = ""
    preview: bool = False  # it never became a production release
    note: str = ""

    @property
    def title(self) -> str:
        """Return both numbers, for messages."""
        return f"L4T {self.l4t} (JetPack {self.jetpack})"


class JetsonDevice(Struct, frozen=True):
    """A family of Jetson modules with one GPU architecture."""

    name: str
    title: str
    capability: Pair
    soc: str  # the last entry of ``/proc/device-tree/compatible``, without the vendor
    platform: str
    gpus: tuple[str, ...]  # canonical names of its GPUs
    source: Source
    parts: tuple[str, ...] = ()  # part numbers of its modules
    last_jetpack: str = ""


class Upgrade(Struct, frozen=True):
    """The CUDA releases to which the ``cuda-compat`` packages of Jetson lift a series of L4T."""

    series: str  # ``36``: every L4T release that begins with it
    compatible: tuple[Pair, ...]
    incompatible: str
    package: str
    source: Source
    # names by device, where they differ (``cuda-compat-orin-<M>-<m>``)
    packages: dict[str, str] = {}
    disputed: dict[str, Claim] = {}  # CUDA releases on which statements differ

    def package_of(self, cuda: Pair, device: str) -> str:
        """Return the name of the package that brings a CUDA to a device; empty: there is none."""
        name = self.packages.get(device, self.package)
        return name.replace("<M>", str(cuda[0])).replace("<m>", str(cuda[1]))


class Runs(Struct, frozen=True):
    """The toolkits whose programs a libcuda runs on a series of L4T, and those it refuses."""

    series: str
    libcuda: Pair
    runs: tuple[Pair, ...]
    refuses: tuple[Pair, ...]
    source: Source


class Sbsa(Struct, frozen=True):
    """A statement whether builds for Arm servers (SBSA) run on a device."""

    device: str
    since: NodeVersion | None  # the first L4T release that runs them; None: none does
    text: str
    source: Source


class Wheels(Struct, frozen=True):
    """An index of wheels, and whether they fit devices on series of L4T."""

    package: str
    series: tuple[str, ...]
    devices: tuple[str, ...]
    index: str
    fits: bool | None  # None: reports differ
    source: Source
    versions: tuple[str, ...] = ()  # releases that were seen there; empty: not read
    label: str = ""  # the label under which a stack names them
    range: str = ""
    code: tuple[Pair, ...] = ()  # capabilities that they have code for; empty: not read


class Dispute(Struct, frozen=True):
    """GPU code of which nobody published whether it runs on a Tegra part."""

    device: Pair
    code: tuple[Pair, ...]
    libcuda: Pair | None  # from this CUDA of libcuda on; None: with any
    text: str
    source: Source


class Jetson(Struct, frozen=True, dict=True):
    """Table ``jetson``; releases ascending by L4T."""

    releases: tuple[JetsonRelease, ...]
    devices: tuple[JetsonDevice, ...]
    upgrades: tuple[Upgrade, ...]
    runs: tuple[Runs, ...]
    sbsa: tuple[Sbsa, ...]
    wheels: tuple[Wheels, ...]
    disputes: tuple[Dispute, ...]

    @cached_property
    def device_of_gpu(self) -> dict[str, JetsonDevice]:
        """Return devices by the canonical name of their GPUs."""
        return {gpu: device for device in self.devices for gpu in device.gpus}

    def device_of(self, gpu: str, capability: Pair) -> JetsonDevice | None:
        """Return the device of a GPU, else the only one of its capability."""
        if found := self.device_of_gpu.get(gpu):
            return found
        same = [one for one in self.devices if one.capability == capability]
        return same[0] if len(same) == 1 else None

    def upgrade_of(self, l4t: Version) -> Upgrade | None:
        """Return what upgrades a release."""
        return next((one for one in self.upgrades if in_series(l4t, one.series)), None)

    def runs_of(self, l4t: Version, libcuda: Pair) -> Runs | None:
        """Return what a libcuda runs on a release; None: not published."""
        return next(
            (one for one in self.runs if one.libcuda == libcuda and in_series(l4t, one.series)),
            None,
        )

    def wheels_of(self, package: str, l4t: Version, device: str) -> tuple[Wheels, ...]:
        """Return the indexes whose wheels of a package fit a device on a release."""
        return tuple(
            one
            for one in self.wheels
            if one.fits
            and one.package == package
            and device in one.devices
            and any(in_series(l4t, series) for series in one.series)
        )


def in_series(l4t: Version, series: str) -> bool:
    """Return whether a release of L4T is of a series (``36`` or ``36.4``)."""
    parts = tuple(map(int, series.split(".")))
    return l4t.at(len(parts)) == parts
