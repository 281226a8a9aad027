"""What the wanted files of a layer tell, each kind by a small function."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from msgspec.structs import replace

from compatgate.core.components import is_framework
from compatgate.core.facts.packages import FILES_ARE_READ
from compatgate.core.versions import parse_version, show
from compatgate.discovery.image.compat import of_path
from compatgate.discovery.image.databases import apk_packages, dpkg_packages
from compatgate.discovery.image.feed import Content
from compatgate.discovery.image.rpm import LARGEST as LARGEST_RPM
from compatgate.discovery.image.rpm import rpm_packages
from compatgate.discovery.image.wanted import python_of
from compatgate.discovery.libraries import library_observation, parse_version_file
from compatgate.discovery.lockfiles import build_label, conda
from compatgate.discovery.lockfiles.interface import Package
from compatgate.discovery.observed import Observation
from compatgate.discovery.packages import observe, tidy
from compatgate.discovery.python_env import read_answer
from compatgate.discovery.signals import CUDA_COMPAT, Signals
from compatgate.errors import BadInput

_LARGEST_TEXT = 256 * 1024
_TORCH = re.compile(r"^__version__\s*=\s*['\"]([^'\"]+)", re.MULTILINE)
_TORCH_CUDA = re.compile(r"^cuda(?:\s*:[^=]*)?\s*=\s*['\"](\d+\.\d+)", re.MULTILINE)
_CONDA_CUDA = re.compile(r"(?:^|_)cuda_?(\d{1,2})\.?(\d)?")


def named_by_folder(folder: str) -> tuple[str, str] | None:
    """Name and version of a Python distribution, as the name of its folder states them.

    A hard link has no content (PyPA, "Recording installed projects").
    """
    name, _, version = folder.rpartition("/")[2].rpartition(".")[0].partition("-")
    return (name, version.partition("-py")[0]) if version else None


def of_distribution(name: str, version: str, origin: str) -> list[Observation]:
    """The component that a distribution is, and the Python that it is installed for."""
    found = [
        replace(seen, origin=origin)
        for seen in read_answer({"packages": {name: version}}, origin, FILES_ARE_READ).observations
        if seen.component != "python" and _is_version(seen)
    ]
    python = python_of(origin)
    if found and python and is_framework(found[0].component):
        found.append(Observation("python", python, origin, "derived"))
    return found


def cuda_label(observations: list[Observation]) -> Iterator[Observation]:
    """The CUDA that a framework's build names (``+cu121``): it loads that, not the base's."""
    for seen in observations:
        if is_framework(seen.component):
            cuda = parse_version(seen.component, seen.version).cuda
            if cuda and len(cuda) == 2:
                yield Observation("cuda", show(cuda), f"{seen.origin}: {seen.version}", "metadata")


def torch_version(content: Content, origin: str) -> list[Observation]:
    """``torch/version.py``: the version with its label, and the CUDA of the build."""
    text = (content.read_all(_LARGEST_TEXT) or b"").decode("utf-8", "replace")
    found = []
    if (match := _TORCH.search(text)) and tidy("torch", match[1]):
        found.append(Observation("torch", match[1], origin, "metadata"))
    if match := _TORCH_CUDA.search(text):
        found.append(Observation("cuda", match[1], origin, "metadata"))
    return found


def conda_package(path: str, origin: str, signals: Signals) -> list[Observation]:
    """A package by its record's name, ``pytorch-2.3.1-py3.11_cuda12.1_cudnn8.9.2_0.json``."""
    parts = path.rpartition("/")[2].removesuffix(".json").rsplit("-", 2)
    if len(parts) != 3:
        return []
    name, version, build = parts
    component = signals.conda.get(name)
    if component is None:
        known = conda.component_of(Package(name, origin, build=build, ecosystem="conda"))
        component = known.name if known else None
    if component is None or name == "cuda-nvtx":
        return []
    label = ""
    if is_framework(component):
        label = f"+{build_label.of_conda_framework(build)}"
    elif component in ("cudnn", "nccl"):
        match = _CONDA_CUDA.search(build)
        label = f"+cu{match[1]}{match[2] or ''}" if match else ""
    clean = tidy(component, version + label)
    return [Observation(component, clean, origin, "metadata")] if clean else []


def library(path: str, origin: str) -> Observation | None:
    """What a library's file name tells."""
    seen = library_observation(path)
    if seen is None or not _is_version(seen):
        return None
    return replace(seen, origin=origin)


def toolkit(path: str, content: Content, origin: str) -> Observation | None:
    """A toolkit's version file."""
    text = (content.read_all(_LARGEST_TEXT) or b"").decode("utf-8", "replace")
    seen = parse_version_file(text, path)
    return replace(seen, origin=origin) if seen and _is_version(seen) else None


def library_path(content: Content, origin: str) -> list[Observation]:
    """What a file below ``/etc/ld.so.conf.d`` adds to the library path."""
    text = (content.read_all(_LARGEST_TEXT) or b"").decode("utf-8", "replace")
    return of_path(text.splitlines(), origin)


def packages(
    kind: str, content: Content, origin: str, signals: Signals, check: Callable[[], None]
) -> tuple[list[Observation], list[str]]:
    """The components in a distribution's package database, and what of them cannot be read.

    Raises:
        ValueError: the database cannot be read; says why.
    """
    if kind == "rpm":
        data = content.read_into_memory(LARGEST_RPM)
        if data is None:
            raise ValueError(f"it is larger than {LARGEST_RPM} bytes")
        rows = rpm_packages(data, check)
    else:
        rows = (apk_packages if kind == "apk" else dpkg_packages)(content)
    left: list[str] = []
    seen = (observe(n, v, f"{origin}: {n} {v}", signals, left) for n, v in rows)
    return [o for o in seen if o], left


def _is_version(seen: Observation) -> bool:
    component = "cuda" if seen.component == CUDA_COMPAT else seen.component
    try:
        parse_version(component, seen.version)
    except BadInput:
        return False
    return True
