"""Which files of an image tell something, by their paths alone."""

from __future__ import annotations

import re
from typing import Literal

from compatgate.discovery.image.feed import Member
from compatgate.discovery.installed_metadata import FILES, metadata_folder
from compatgate.discovery.wheels.families import is_loaded_kernel

Kind = Literal[
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
]

_RPM: dict[str, Kind] = {
    "rpmdb.sqlite": "rpm",
    "rpmdb.sqlite-wal": "rpm-log",
    "Packages": "rpm",
    "Packages.db": "rpm",
}
_DATABASES: dict[str, Kind] = {
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
_SITE = re.compile(r"(?:^|/)(?:site|dist)-packages/")

# Folders of package managers' caches: what lies there is not installed.
_CACHES = re.compile(r"(?:^|/)(?:\.cache|\.pip|pkgs/cache)/|(?:^|/)(?:conda|miniconda3?)/pkgs/")
_STUBS = re.compile(r"/(?:stubs|debug|include|share)/")
_SYSTEM_PROGRAMS = re.compile(r"(?:usr/)?(?:s?bin|lib(?:exec)?|share)/")
_OF_NVIDIA = re.compile(
    r"lib(?:cu(?:blas|da|dart|dnn|fft|file|inj|pti|rand|solver|sparse|tensor)|nccl|npp|nvblas|"
    r"nvfatbin|nvinfer|nvjitlink|nvjpeg|nvrtc|nvshmem|nvvm|nvtx)",
    re.IGNORECASE,
)
_OF_COMPONENTS = re.compile(r"lib(?:cublas|cuda|cudart|cudnn|nccl|nvblas|nvinfer)", re.IGNORECASE)
_SMALLEST_CODE = 1024
_LONGEST = 4096  # PATH_MAX: no program can open a longer one


def wanted(member: Member) -> Kind | None:
    """What a member may tell; None when nothing."""
    path = member.path
    name = path[path.rfind("/") + 1 :]
    if member.kind not in ("file", "hardlink") or len(path) > _LONGEST:
        return None
    if ".so" in name:
        return _library(member, path, name)
    if name in FILES:
        return "dist-info" if metadata_folder(path) else None
    if is_loaded_kernel(name):
        return "kernel" if _SITE.search(path) else None
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


def _library(member: Member, path: str, name: str) -> Kind | None:
    if _LIBRARY.fullmatch(name) or _COMPAT.fullmatch(path):
        return "library"
    shared = name.endswith(".so") or (".so." in name and name[-1:].isdigit())
    if not shared or (member.kind == "file" and member.size < _SMALLEST_CODE):
        return None
    if _STUBS.search(path) or (_OF_NVIDIA.match(name) and not _is_of_package(path, name)):
        return None
    return "code"


def _is_of_package(path: str, name: str) -> bool:
    """Tell whether a library of NVIDIA is of a package, and not of a component with tables."""
    return bool(_SITE.search(path)) and not _OF_COMPONENTS.match(name)


def is_cached(path: str) -> bool:
    """Whether a file lies in a package manager's cache; installed files may be hard links to it."""
    return _CACHES.search(path) is not None


def owner(path: str) -> str:
    """The package that a file in ``site-packages`` belongs to, by its folder; ``""`` elsewhere."""
    match = _SITE.search(path)
    if not match:
        return ""
    return path[match.end() :].partition("/")[0].partition(".")[0].lower().replace("_", "-")


def python_of(path: str) -> str | None:
    """``3.11`` for a file below ``lib/python3.11/``."""
    match = re.search(r"(?:^|/)python(\d\.\d{1,2})t?/(?:site|dist)-packages/", path)
    return match[1] if match else None
