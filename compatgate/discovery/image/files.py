"""Choose the files of a layer to read by their paths, and read each kind."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Literal

from msgspec.structs import replace

from compatgate.core.components import is_framework
from compatgate.core.facts.packages import NO_KNOWN_PACKAGES
from compatgate.core.versions import format_parts, parse_version
from compatgate.discovery.image.config import compat_use_of_path
from compatgate.discovery.image.package_databases import (
    LARGEST_RPM,
    apk_packages,
    dpkg_packages,
    rpm_packages,
)
from compatgate.discovery.image.tar import Content, Member
from compatgate.discovery.installed_metadata import METADATA_FILES, metadata_folder
from compatgate.discovery.libraries import observe_library, parse_version_file
from compatgate.discovery.lockfiles import stack_components, wheel_builds
from compatgate.discovery.lockfiles.interface import ListedPackage
from compatgate.discovery.observations import Observation, is_version
from compatgate.discovery.python_env import read_answer
from compatgate.discovery.signals import CUDA_COMPAT, Signals, tidy_version
from compatgate.discovery.wheels.names import is_loaded_kernel

FileKind = Literal[
    "dist-info",
    "kernel",
    "torch",
    "conda",
    "library",
    "toolkit",
    "dpkg",
    "apk",
    "rpm",
    "rpm-log",
    "code",
    "library-path",
    "venv",
    "path-file",
]
_RPM: dict[str, FileKind] = {
    "rpmdb.sqlite": "rpm",
    "rpmdb.sqlite-wal": "rpm-log",
    "Packages": "rpm",
    "Packages.db": "rpm",
}
_DATABASES: dict[str, FileKind] = {
    "var/lib/dpkg/status": "dpkg",
    "lib/apk/db/installed": "apk",
    "usr/lib/apk/db/installed": "apk",
    **{f"var/lib/rpm/{name}": kind for name, kind in _RPM.items()},
    **{f"usr/lib/sysimage/rpm/{name}": kind for name, kind in _RPM.items()},
    **{f"usr/share/rpm/{name}": kind for name, kind in _RPM.items()},
}
_LIBRARY_PATH = "etc/ld.so.conf.d/"
_DPKG_FOLDER = "var/lib/dpkg/status.d/"
_LIBRARY = re.compile(
    r"(?:libcudart|libcudnn|libnccl|libcublas|libnvinfer)(?:-[0-9a-f]{8,})?\.so\.[\d.]+"
)
_COMPAT = re.compile(r"(?:.*/)?compat[^/]*/(?:.*/)?libcuda\.so\.\d+\.[\d.]+")
_TOOLKIT = re.compile(r"(?:.*/)?cuda[^/]*/version\.(?:json|txt)")
_SITE_PACKAGES = re.compile(r"(?:^|/)(?:site|dist)-packages/")
# Folders of package managers' caches: their files are not installed. A cache may have whole
# environments as well, as that of poetry does.
_CACHES = re.compile(
    r"(?:^|/)(?:\.cache|\.pip|pkgs/cache)/(?!(?:.*/)?lib(?:32|64)?/python\d[\d.]*t?/)"
    r"|(?:^|/)(?:conda|miniconda3?)/pkgs/"
)
_STUBS = re.compile(r"/(?:stubs|debug|include|share)/")
_SYSTEM_PROGRAMS = re.compile(r"(?:usr/)?(?:s?bin|lib(?:exec)?|share)/")
_NVIDIA_LIBRARY = re.compile(
    r"lib(?:cu(?:blas|da|dart|dnn|fft|file|inj|pti|rand|solver|sparse|tensor)|nccl|npp|nvblas|"
    r"nvfatbin|nvinfer|nvjitlink|nvjpeg|nvrtc|nvshmem|nvvm|nvtx)",
    re.IGNORECASE,
)
_COMPONENT_LIBRARY = re.compile(
    r"lib(?:cublas|cuda|cudart|cudnn|nccl|nvblas|nvinfer)", re.IGNORECASE
)
_SMALLEST_CODE = 1024
_SMALLEST_DRIVER = 1024 * 1024
"""Bytes of a ``libcuda`` from which on it counts; also links have less."""
_LONGEST_PATH = 4096  # PATH_MAX: no program can open a longer path


def kind_of_file(member: Member) -> FileKind | None:
    """Return the kind of a member by its path; None for files that are not read."""
    path = member.path
    name = path[path.rfind("/") + 1 :]
    if member.kind not in ("file", "hardlink") or len(path) > _LONGEST_PATH:
        return None
    if ".so" in name:
        if _LIBRARY.fullmatch(name):
            return "library"
        if _COMPAT.fullmatch(path):
            return "library" if member.size >= _SMALLEST_DRIVER else None
        shared = name.endswith(".so") or (".so." in name and name[-1:].isdigit())
        if not shared or (member.kind == "file" and member.size < _SMALLEST_CODE):
            return None
        if _STUBS.search(path) or (
            _NVIDIA_LIBRARY.match(name)
            and not (_SITE_PACKAGES.search(path) and not _COMPONENT_LIBRARY.match(name))
        ):
            return None
        return "code"
    if name in METADATA_FILES:
        return "dist-info" if metadata_folder(path) else None
    if is_loaded_kernel(name):
        return "kernel" if _SITE_PACKAGES.search(path) else None
    if name == "pyvenv.cfg":
        return "venv"
    if name.endswith(".pth"):
        return "path-file" if _SITE_PACKAGES.search(path) else None
    if name == "version.py":
        return "torch" if path.endswith("/torch/version.py") else None
    if name in ("version.json", "version.txt"):
        return "toolkit" if _TOOLKIT.fullmatch(path) else None
    if name.endswith(".json"):
        return "conda" if path[: -len(name)].endswith("conda-meta/") else None
    if path.startswith(("var/lib/", "lib/apk/", "usr/lib/", "usr/share/rpm/")):
        if path in _DATABASES:
            return _DATABASES[path]
        if path.startswith(_DPKG_FOLDER):
            return None if name.endswith(".md5sums") else "dpkg"
    if name.endswith(".conf"):
        return "library-path" if path.startswith(_LIBRARY_PATH) else None
    if member.executable and "." not in name and member.size >= _SMALLEST_CODE:
        return None if _SYSTEM_PROGRAMS.match(path) else "code"
    return None


def is_toolkit_compat(path: str) -> bool:
    """Return whether a file is the driver library in the folder that NVIDIA's runtime loads."""
    return path.startswith("usr/local/cuda/compat/") and _COMPAT.fullmatch(path) is not None


def is_nvidia_library(name: str) -> bool:
    """Return whether a file name is that of one of NVIDIA's libraries."""
    return _NVIDIA_LIBRARY.match(name) is not None


def is_cached(path: str) -> bool:
    """Return whether a file is in a package manager's cache, which may have hard links."""
    return _CACHES.search(path) is not None


def find_owner(path: str) -> str:
    """Return the package of a file in ``site-packages`` by its folder; ``""`` for other files."""
    match = _SITE_PACKAGES.search(path)
    if not match:
        return ""
    return path[match.end() :].partition("/")[0].partition(".")[0].lower().replace("_", "-")


LARGEST_TEXT = 256 * 1024
_PYTHON_FOLDER = re.compile(r"(?:^|/)python(\d\.\d{1,2})t?/(?:site|dist)-packages/")
_TORCH = re.compile(r"^__version__\s*=\s*['\"]([^'\"]+)", re.MULTILINE)
_TORCH_CUDA = re.compile(r"^cuda(?:\s*:[^=]*)?\s*=\s*['\"](\d+\.\d+)", re.MULTILINE)
_CONDA_CUDA = re.compile(r"(?:^|_)cuda_?(\d{1,2})\.?(\d)?")


def parse_folder_name(folder: str) -> tuple[str, str] | None:
    """Return the name and version of a Python distribution by the name of its folder.

    Hard links need this, as they have no content (PyPA, "Recording installed projects").
    """
    name, _, version = folder.rpartition("/")[2].rpartition(".")[0].partition("-")
    return (name, version.partition("-py")[0]) if version else None


def observe_distribution(name: str, version: str, origin: str) -> list[Observation]:
    """Observe the component in a distribution, and the Python of its installation."""
    observations = [
        replace(observation, origin=origin)
        for observation in read_answer(
            {"packages": {name: version}}, origin, NO_KNOWN_PACKAGES
        ).observations
        if observation.component != "python" and _is_version(observation)
    ]
    python = _PYTHON_FOLDER.search(origin)
    if observations and python and is_framework(observations[0].component):
        observations.append(Observation("python", python[1], origin, "derived"))
    return observations


def read_cuda_label(observations: list[Observation]) -> Iterator[Observation]:
    """Yield the CUDA in a framework's build label (``+cu121``), which the framework loads."""
    for observation in observations:
        if is_framework(observation.component):
            cuda = parse_version(observation.component, observation.version).cuda
            if cuda and len(cuda) == 2:
                yield Observation(
                    "cuda",
                    format_parts(cuda),
                    f"{observation.origin}: {observation.version}",
                    "metadata",
                )


def read_torch_version(data: bytes, origin: str) -> list[Observation]:
    """Read ``torch/version.py``: the version with its label, and the CUDA of the build."""
    text = data.decode("utf-8", "replace")
    observations = []
    if (match := _TORCH.search(text)) and tidy_version("torch", match[1]):
        observations.append(Observation("torch", match[1], origin, "metadata"))
    if match := _TORCH_CUDA.search(text):
        observations.append(Observation("cuda", match[1], origin, "metadata"))
    return observations


def observe_conda_package(path: str, origin: str, signals: Signals) -> list[Observation]:
    """Observe a conda package by its record's name, ``pytorch-2.3.1-py3.11_cuda12.1_0.json``."""
    parts = path.rpartition("/")[2].removesuffix(".json").rsplit("-", 2)
    if len(parts) != 3:
        return []
    name, version, build = parts
    component = signals.conda.get(name)
    if component is None:
        known = stack_components.find_conda_component(
            ListedPackage(name, origin, build=build, ecosystem="conda")
        )
        component = known.name if known else None
    if component is None or name == "cuda-nvtx":
        return []
    label = ""
    if is_framework(component):
        label = f"+{wheel_builds.parse_conda_framework_label(build)}"
    elif component in ("cudnn", "nccl"):
        match = _CONDA_CUDA.search(build)
        label = f"+cu{match[1]}{match[2] or ''}" if match else ""
    clean = tidy_version(component, version + label)
    return [Observation(component, clean, origin, "metadata")] if clean else []


def observe_library_file(path: str, origin: str) -> Observation | None:
    """Observe a library by its file name."""
    observation = observe_library(path)
    if observation is None or not _is_version(observation):
        return None
    return replace(observation, origin=origin)


def read_toolkit_version(path: str, data: bytes, origin: str) -> Observation | None:
    """Read a toolkit's version file."""
    text = data.decode("utf-8", "replace")
    seen = parse_version_file(text, path)
    return replace(seen, origin=origin) if seen and _is_version(seen) else None


def read_library_path(data: bytes, origin: str) -> list[Observation]:
    """Read the library path in a file below ``/etc/ld.so.conf.d``."""
    text = data.decode("utf-8", "replace")
    return compat_use_of_path(text.splitlines(), origin)


def read_package_database(
    kind: str, content: Content, signals: Signals, check: Callable[[], None]
) -> list[tuple[str, str]]:
    """Return the names and versions of the packages that may be components."""
    if kind == "rpm":
        data = content.read_into_memory(LARGEST_RPM)
        if data is None:
            raise ValueError(f"it is larger than {LARGEST_RPM} bytes")
        rows = rpm_packages(data, check)
    else:
        rows = (apk_packages if kind == "apk" else dpkg_packages)(content)
    return [row for row in rows if signals.package(row[0].lower()) is not None]


def _is_version(seen: Observation) -> bool:
    return is_version("cuda" if seen.component == CUDA_COMPAT else seen.component, seen.version)
