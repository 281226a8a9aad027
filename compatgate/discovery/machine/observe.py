"""Observe a machine: each part of the node that files and programs show, and its platform.

What is not seen is not stated, and nothing is guessed.
"""

from __future__ import annotations

import io
import re
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import Struct

from compatgate.core.facts import Facts
from compatgate.discovery.image.package_databases import LARGEST_RPM, dpkg_packages, rpm_packages
from compatgate.discovery.machine.files import Root, is_container, observe_files, read_machine_texts
from compatgate.discovery.machine.platforms import recognise_platform
from compatgate.discovery.nvidia_smi.node_parts import keep_valid
from compatgate.discovery.observations import Observation
from compatgate.errors import CompatgateError, quote_error

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
    platform = recognise_platform(read_machine_texts(place), gpus, facts)
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
