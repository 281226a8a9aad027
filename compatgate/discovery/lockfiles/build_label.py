"""The CUDA that a package was built for, where an index, a file name or a build string says it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import unquote, urlsplit

from packaging.utils import InvalidSdistFilename, InvalidWheelFilename, parse_sdist_filename
from packaging.utils import parse_wheel_filename as _parse_wheel
from packaging.version import InvalidVersion

from compatgate.core.frameworks import conda_label

_INDEX = re.compile(r"/(?P<label>cu\d{2,4}|cpu|rocm\d[\d.]*|xpu)(?=/|$)")
"""``https://download.pytorch.org/whl/nightly/cu124/``, ``https://wheels.vllm.ai/0.9.0/cu128``."""
_LOCAL = re.compile(r"\+(?P<label>[a-z0-9._\-]+)$", re.IGNORECASE)
_ACCELERATOR = re.compile(r"cu(?:da)?[\d-]|cpu|rocm|xpu", re.IGNORECASE)
_CONDA_CUDA = re.compile(
    r"(?:^|[_*\-])cuda[_\-]?(?:(?P<dotted>\d{1,2}\.\d{1,2})|(?P<tag>\d{2,3}))(?!\d)"
)
_CONDA_CUDNN = re.compile(r"cudnn(?P<version>\d{1,2}\.\d{1,2}(?:\.\d{1,3}){0,2})")
_CONDA_CPU = re.compile(r"(?:^|[_*\-])cpu(?:[_*\-]|$)")
_PLAIN_CUDA = re.compile(r"(?:^|[_*\-])(?:cuda|gpu)(?:[_*\-]|$|py)")


def of_url(url: str) -> str:
    """``cu121`` for an index or wheel URL below ``/whl/cu121``; ``""`` where it says nothing."""
    try:
        path = unquote(urlsplit(url).path)
    except ValueError:
        return ""
    found = [match["label"] for match in _INDEX.finditer(path.lower())]
    return found[-1] if found else ""


def of_version(version: str) -> str:
    """``cu121`` for ``2.4.1+cu121``; ``""`` without a label that names an accelerator."""
    match = _LOCAL.search(version)
    return match["label"].lower() if match and _ACCELERATOR.match(match["label"]) else ""


def of_sources(urls: Iterable[str]) -> tuple[str, ...]:
    """The distinct labels that URLs name, in order: a wheel's own version before its folder."""
    found: dict[str, None] = {}
    for url in urls:
        named = file_version(url)
        label = (of_version(named[1]) if named else "") or of_url(url)
        if label:
            found[label] = None
    return tuple(found)


def file_version(url: str) -> tuple[str, str] | None:
    """Name and version from the name of a wheel or sdist: ``("torch", "2.4.1+cu121")``."""
    name = unquote(url.split("#")[0].split("?")[0]).replace("\\", "/").rsplit("/", 1)[-1]
    try:
        if name.endswith(".whl"):
            project, version, *_ = _parse_wheel(without_variant(name)[0])
        elif name.endswith((".tar.gz", ".zip")):
            project, version = parse_sdist_filename(name)
        else:
            return None
    except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion, ValueError):
        return None
    return project, str(version)


def without_variant(wheel: str) -> tuple[str, str]:
    """A wheel's name as PEP 427 has it, and its variant label (PEP 825), ``""`` without one.

    The label is one more part, last: ``torch-2.8.0-cp311-cp311-manylinux_2_28_x86_64-cu128.whl``.
    """
    parts = wheel.removesuffix(".whl").split("-")
    if len(parts) in (6, 7) and not parts[-1].startswith(_PLATFORM_STARTS):
        return "-".join(parts[:-1]) + ".whl", parts[-1]
    return wheel, ""


_PLATFORM_STARTS = ("manylinux", "musllinux", "linux", "macosx", "win", "any", "ios", "android")


def of_conda_build(build: str) -> str:
    """The label of a conda build string, as PyPI's wheels write it.

    ``py3.11_cuda12.1_cudnn8.9.2_0`` is ``cu121``, ``cuda126_py311h...`` is ``cu126``,
    ``py3.11_cpu_0`` is ``cpu``; ``""`` where it says nothing.
    """
    text = build.lower()
    if match := _CONDA_CUDA.search(text):
        return f"cu{(match['dotted'] or match['tag']).replace('.', '')}"
    return "cpu" if _CONDA_CPU.search(text) else ""


def of_conda_framework(build: str, channel: str = "") -> str:
    """The label of a framework that a channel of conda built, told apart from PyPI's wheels.

    ``cuda126_py312h...`` is ``conda.cu126``, and ``conda.forge.cu126`` where the channel is
    conda-forge; ``h955ad1f_0`` is ``conda``, ``py3.11_cpu_0`` is ``cpu``.
    """
    label, begins = of_conda_build(build), conda_label(channel)
    return label if label == "cpu" else f"{begins}.{label}" if label else begins


def uses_cuda(build: str) -> bool:
    """Whether a conda build string says CUDA at all, with or without its version."""
    text = build.lower()
    return bool(_PLAIN_CUDA.search(text)) or of_conda_build(text).startswith("cu")


def cudnn_of_conda_build(build: str) -> str:
    """The cuDNN of a conda build string: ``8.9.2`` of ``py3.11_cuda12.1_cudnn8.9.2_0``."""
    match = _CONDA_CUDNN.search(build.lower())
    return match["version"] if match else ""
