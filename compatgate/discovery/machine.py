"""Observe a machine: each part of the node that files and programs show, and its platform.

What is not seen is not stated, and nothing is guessed: a missing file never means "off".
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress

from msgspec import Struct

from compatgate.core.facts import Facts
from compatgate.discovery.driver import PROC, parse_proc_version
from compatgate.discovery.image.package_databases import LARGEST_RPM, dpkg_packages, rpm_packages
from compatgate.discovery.nvidia_smi.node_parts import keep_valid
from compatgate.discovery.observations import Observation
from compatgate.discovery.platforms import MachineTexts, recognise_platform
from compatgate.errors import CompatgateError, quote_error

_LARGEST = 64 * 1024
"""Bytes that are read of a file, unless more are asked for."""


class Root(Struct, frozen=True):
    """The root folder of a machine; ``/`` is this machine."""

    path: str = "/"

    @property
    def is_here(self) -> bool:
        """Return whether this is the root of the running system, whose programs may be asked."""
        return os.path.realpath(self.path) == "/"

    def at(self, path: str) -> str:
        """Return the place of an absolute path below this root."""
        return os.path.join(self.path, path.lstrip("/"))

    def read(self, path: str, largest: int = _LARGEST) -> str:
        """Return the text of a file without surrounding space; empty if it cannot be read."""
        return self.read_bytes(path, largest).decode("utf-8", "replace").strip("\0 \t\r\n")

    def read_bytes(self, path: str, largest: int = _LARGEST) -> bytes:
        """Return the first bytes of a file; empty if it cannot be read."""
        try:
            with open(self.at(path), "rb") as file:
                return file.read(largest)
        except OSError:
            return b""

    def has(self, path: str) -> bool:
        """Return whether a file or folder exists."""
        return os.path.exists(self.at(path))

    def list(self, path: str) -> tuple[str, ...]:
        """Return the names in a folder, sorted; empty if it cannot be read."""
        try:
            return tuple(sorted(os.listdir(self.at(path))))
        except OSError:
            return ()


OS_RELEASE = ("/etc/os-release", "/usr/lib/os-release")
OS_KERNEL = "/proc/sys/kernel/osrelease"
SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
EFA_INSTALLER = "/opt/amazon/efa_installed_packages"
RUNTIME_CONFIG = "/etc/nvidia-container-runtime/config.toml"
GPUS = "/proc/driver/nvidia/gpus"
_MODULES = "/sys/module"
_PEER_MODULES = ("nvidia_peermem", "nv_peer_mem")
_CONTAINER_SIGNS = ("/.dockerenv", "/run/.containerenv", "/run/secrets/kubernetes.io")
_OFED = re.compile(r"\d{2}\.\d{2}(?:\.\d+)?-\d+(?:\.\d+)*")
_MODE = re.compile(r'^\s*mode\s*=\s*"(cdi|legacy|csv)"', re.MULTILINE)
_EFA = re.compile(r"EFA installer version:\s*(\d[\w.]*)")
_VIDEO_BIOS = re.compile(r"^Video BIOS:\s*([0-9a-fA-F][0-9a-fA-F.]+)\s*$", re.MULTILINE)


def observe_files(root: Root, notes: list[str]) -> Iterator[Observation]:
    """Yield the parts that files tell, the better witness of a part first."""
    driver = parse_proc_version(root.read(PROC, 4096))
    nouveau = root.has(f"{_MODULES}/nouveau")
    if driver and driver.open is not None:
        if nouveau:
            notes.append("the kernel has loaded nouveau in addition to the NVIDIA modules")
        flavour = "open" if driver.open else "proprietary"
        yield Observation("kernel-modules", flavour, PROC)
    elif nouveau and not root.has(f"{_MODULES}/nvidia"):
        yield Observation("kernel-modules", "nouveau", f"{_MODULES}/nouveau")
    if kernel := root.read(OS_KERNEL, 256):
        yield Observation("kernel", kernel, OS_KERNEL)
    if match := _EFA.search(root.read(EFA_INSTALLER)):
        yield Observation("efa", match[1], EFA_INSTALLER, "metadata")
    if match := _MODE.search(root.read(RUNTIME_CONFIG)):  # "auto" is decided for each container
        yield Observation("container-mode", match[1], RUNTIME_CONFIG, "metadata")
    ofed = f"{_MODULES}/mlx5_core/version"  # the kernel's own module has no such version
    if _OFED.fullmatch(version := root.read(ofed, 256)):
        yield Observation("ofed", version, ofed)
    yield from _distribution(root, notes)
    data = root.read_bytes(SECURE_BOOT, 16)
    if len(data) == 5 and data[4] in (0, 1):
        yield Observation("secure-boot", "on" if data[4] else "off", SECURE_BOOT)
    # without a loaded peer-memory module, dma-buf may still do its work
    modules = (f"{_MODULES}/{module}" for module in _PEER_MODULES)
    if module := next(filter(root.has, modules), None):
        yield Observation("peer-memory", "nvidia-peermem", module)
    texts = [root.read(f"{GPUS}/{bus}/information", 4096) for bus in root.list(GPUS)]
    found = {match[1] for text in texts if (match := _VIDEO_BIOS.search(text))}
    if len(found) == 1:
        yield Observation("vbios", found.pop(), f"{GPUS}/*/information")
    elif found:
        notes.append(f"the VBIOS differs among the GPUs: {', '.join(sorted(found))}")
    yield from _iommu(root, notes)
    yield from _acs(root)


def is_container(root: Root) -> bool:
    """Return whether the files below a root are of a container, not of the node."""
    return any(root.has(sign) for sign in _CONTAINER_SIGNS)


def _distribution(root: Root, notes: list[str]) -> Iterator[Observation]:
    if is_container(root):
        notes.append("this is a container: its distribution and packages are not the node's")
        return
    for path in OS_RELEASE:
        stated: dict[str, str] = {}
        for line in root.read(path).splitlines():
            name, equals, value = line.partition("=")
            with suppress(ValueError):  # variables are written as in a shell
                words = shlex.split(value) if equals else []
                stated |= {name.strip(): words[0]} if len(words) == 1 else {}
        if stated.get("ID"):
            text = "-".join(filter(None, (stated["ID"], stated.get("VERSION_ID"))))
            yield Observation("distribution", text, path, "metadata")
            return


_PCI = "/sys/bus/pci/devices"
_DISPLAY, _BRIDGE = "0x03", "0x0604"
"""Starts of PCI classes: display controllers, bridges."""


def _iommu(root: Root, notes: list[str]) -> Iterator[Observation]:
    """Yield how the IOMMU treats the GPUs: their groups have a type."""
    gpus = [
        device
        for device in root.list(_PCI)
        if root.read(f"{_PCI}/{device}/vendor", 16) == "0x10de"
        and root.read(f"{_PCI}/{device}/class", 16).startswith(_DISPLAY)
    ]
    kinds = {root.read(f"{_PCI}/{gpu}/iommu_group/type", 64) for gpu in gpus}
    found = {"passthrough" if k == "identity" else "on" if k[:3] == "DMA" else "" for k in kinds}
    if gpus and found == {""} and root.has("/sys/class/iommu"):
        found = {"off"} if not root.list("/sys/class/iommu") else {""}
    if len(found) == 1 and (mode := found.pop()):
        yield Observation("iommu", mode, f"{_PCI}/*/iommu_group/type")
    elif len(found) > 1:
        notes.append("the IOMMU treats the GPUs of this machine in different ways")


_FIRST_EXTENDED, _ACS_ID, _REDIRECTS = 0x100, 0x000D, 0b1101
"""Offset of the extended capabilities; id of Access Control Services; its bits that keep peers
apart: Source Validation, P2P Request Redirect, P2P Completion Redirect (PCIe 7.7.8.3)."""


def _acs(root: Root) -> Iterator[Observation]:
    """Yield whether a bridge redirects traffic between peers; only root may read what tells."""
    controls = []
    for device in root.list(_PCI):
        if not root.read(f"{_PCI}/{device}/class", 16).startswith(_BRIDGE):
            continue
        config = root.read_bytes(f"{_PCI}/{device}/config", 4096)
        if len(config) < 4096 and len(config) != 256:
            return  # cut short: not root
        at = _FIRST_EXTENDED
        for _ in range(64):  # the list of capabilities, to the ACS control register
            if not _FIRST_EXTENDED <= at <= len(config) - 8:
                break
            head = int.from_bytes(config[at : at + 4], "little")
            if head & 0xFFFF == _ACS_ID:
                controls.append(int.from_bytes(config[at + 6 : at + 8], "little"))
                break
            at = head >> 20
    if controls:
        on = any(control & _REDIRECTS for control in controls)
        yield Observation("acs", "on" if on else "off", f"{_PCI}/*/config")


Run = Callable[[Sequence[str]], str | None]
"""Runs a program; returns what it prints, None if it is not installed or does not answer."""
_LICENSES = {"Dual MIT/GPL": "open", "NVIDIA": "proprietary"}
_MODINFO = ("modinfo", "-F", "license", "nvidia")
_TIMEOUT_S = 10
_PROGRAMS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("fabric-manager", ("nv-fabricmanager", "--version"), r"Fabric Manager version is\s*:\s*(\S+)"),
    ("imex", ("nvidia-imex", "--version"), r"IMEX version is\s*:\s*(\S+)"),
    ("container-toolkit", ("nvidia-ctk", "--version"), r"CLI version\s+(\S+)"),
    ("dcgm", ("dcgmi", "--version"), r"version\s*:\s*(\S+)"),
    ("ofed", ("ofed_info", "-s"), r"(?:MLNX_OFED_LINUX|OFED-internal|DOCA-OFED)-(\d[\w.-]*)"),
)
_PACKAGES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("fabric-manager", re.compile(r"nvidia-fabric-?manager(?:-\d{3})?")),
    ("imex", re.compile(r"nvidia-imex(?:-\d{3})?")),
    ("nvlsm", re.compile(r"nvlsm")),
    ("container-toolkit", re.compile(r"nvidia-container-toolkit")),
    ("l4t", re.compile(r"nvidia-l4t-core")),
    ("jetpack", re.compile(r"nvidia-jetpack")),
    ("dcgm", re.compile(r"datacenter-gpu-manager(?:-4-core)?")),
)
_DPKG = "/var/lib/dpkg/status"
_LARGEST_DPKG = 64 * 1024 * 1024
_RPM = (
    "/usr/lib/sysimage/rpm/rpmdb.sqlite",
    "/var/lib/rpm/rpmdb.sqlite",
    "/usr/lib/sysimage/rpm/Packages.db",
    "/var/lib/rpm/Packages",
)
_RPM_SECONDS = 20.0


class ObservedMachine(Struct, frozen=True):
    """A machine as seen: parts in the order of `NODE_COMPONENTS`, and its platform, if known.

    The first observation of a part decides.
    """

    node: dict[str, str] = {}
    platform: str | None = None
    observations: tuple[Observation, ...] = ()
    notes: tuple[str, ...] = ()


def observe_machine(
    facts: Facts, gpus: Iterable[str], *, root: str = "/", run: Run | None = None
) -> ObservedMachine:
    """Observe the machine of a root folder; another root than ``/`` is only read."""
    place = Root(root)
    ask = run or (run_program if place.is_here else None)
    notes: list[str] = []
    seen = [
        *observe_files(place, notes),
        *(observe_programs(ask, notes) if ask else ()),
        *observe_packages(place, notes),
    ]
    valid = [one for one in seen if keep_valid({one.component: one.version})]
    notes += [f"{o.component} {o.version!r} of {o.origin} is no value of it" for o in seen
              if o not in valid]  # fmt: skip
    first: dict[str, Observation] = {}
    for one in valid:
        best = first.setdefault(one.component, one)
        if best.version != one.version:
            notes.append(
                f"{best.origin} says {one.component} {best.version}, {one.origin} "
                f"{one.version}: the first decides"
            )
    stated = {name: one.version for name, one in first.items()}
    texts: MachineTexts = {
        "vendor": place.read("/sys/class/dmi/id/sys_vendor", 256),
        "product": place.read("/sys/class/dmi/id/product_name", 256)
        or place.read("/proc/device-tree/model", 256),
        "asset_tag": place.read("/sys/class/dmi/id/chassis_asset_tag", 256),
    }
    platform = recognise_platform(texts, gpus, facts)
    return ObservedMachine(keep_valid(stated), platform, tuple(valid), tuple(notes))


def run_program(arguments: Sequence[str]) -> str | None:
    """Run a program of this machine; see `Run`."""
    try:
        result = subprocess.run(  # noqa: S603 - fixed names and arguments
            list(arguments), capture_output=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return (result.stdout + result.stderr).decode("utf-8", "replace")


def observe_programs(run: Run, notes: list[str]) -> Iterator[Observation]:
    """Yield the versions that installed programs print, and the flavour of the installed module."""
    if flavour := _LICENSES.get((run(_MODINFO) or "").strip()):
        yield Observation("kernel-modules", flavour, " ".join(_MODINFO), "metadata")
    for part, command, pattern in _PROGRAMS:
        printed = run(command)
        if printed is None:
            continue
        if match := re.search(pattern, printed, re.IGNORECASE):
            yield Observation(part, match[1].rstrip(":,"), " ".join(command))
        else:
            notes.append(f"{' '.join(command)} prints no version")


def observe_packages(root: Root, notes: list[str]) -> Iterator[Observation]:
    """Yield the versions in the database of packages; several versions of one tell nothing."""
    if is_container(root):
        return
    found: dict[str, dict[str, str]] = {}
    installed = dpkg_packages(io.BytesIO(root.read_bytes(_DPKG, _LARGEST_DPKG)))
    for name, version, origin in (*((*one, _DPKG) for one in installed), *_rpm(root, notes)):
        for part, pattern in _PACKAGES:
            if pattern.fullmatch(name):
                found.setdefault(part, {})[version.rpartition(":")[2].split("-", 1)[0]] = (
                    f"{origin}: {name}"
                )
    for part, versions in found.items():
        if len(versions) == 1:
            ((version, origin),) = versions.items()
            yield Observation(part, version, origin, "metadata")
        else:
            notes.append(f"several versions of {part} are installed: {', '.join(sorted(versions))}")


def _rpm(root: Root, notes: list[str]) -> Iterator[tuple[str, str, str]]:
    path = next((path for path in _RPM if root.has(path)), None)
    if path is None:
        return
    try:
        data = bytearray(root.read_bytes(path, LARGEST_RPM))
        end = time.monotonic() + _RPM_SECONDS

        def check() -> None:
            if time.monotonic() > end:
                raise TimeoutError(f"it takes longer than {_RPM_SECONDS:g} s")

        yield from ((*one, path) for one in rpm_packages(data, check))
    except (ValueError, TimeoutError, CompatgateError) as error:
        notes.append(f"the package database {path} cannot be read: {quote_error(error)}")
