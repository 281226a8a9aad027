"""Read the report of ``python -m torch.utils.collect_env``: what was installed where it ran.

Source: pytorch/pytorch ``torch/utils/collect_env.py`` (``env_info_fmt``).
"""

from __future__ import annotations

import re

from compatgate.discovery.lockfiles.interface import (
    ListedPackage,
    LockContents,
    LockFile,
    Selection,
)
from compatgate.discovery.lockfiles.platform import Platform

_TORCH = re.compile(r"^\s*PyTorch version: (\S+)\s*$", re.MULTILINE)
_BUILT = re.compile(r"^\s*CUDA used to build PyTorch: ", re.MULTILINE)
_PIP = re.compile(r"^\s*\[pip\d?\]\s+([A-Za-z0-9][\w.-]*)==([^\s;]+)\s*$", re.MULTILINE)
_CONDA = re.compile(
    r"^\s*\[conda\]\s+([A-Za-z0-9][\w.-]*)\s+(\d\S*)\s+(\S+)(?:[ \t]+(\S+))?\s*$", re.MULTILINE
)


class TorchReport:
    """The report of ``collect_env``; what its machine has is for ``--nvidia-smi``."""

    name = "collect_env"

    def recognises(self, file: LockFile) -> bool:
        """Look for two lines that every report has."""
        return bool(_TORCH.search(file.text) and _BUILT.search(file.text))

    def read(self, file: LockFile, platform: Platform, selection: Selection) -> LockContents:
        """Return the installed packages; PyTorch's own version has its CUDA build."""
        found: dict[str, ListedPackage] = {}
        for match in _CONDA.finditer(file.text):
            name, version, build, channel = match.groups()
            if build.startswith("pypi"):
                continue
            origin = f"{file.name}: {name}"
            found[name.lower()] = ListedPackage(
                name, origin, version, build=build, ecosystem="conda", channel=channel or ""
            )
        for name, version in _PIP.findall(file.text):
            found.setdefault(name.lower(), ListedPackage(name, f"{file.name}: {name}", version))
        torch = _TORCH.search(file.text)
        conda = "pytorch" in found or getattr(found.get("torch"), "ecosystem", "") == "conda"
        if torch and torch[1][:1].isdigit() and not conda:
            found["torch"] = ListedPackage("torch", f"{file.name}: PyTorch version", torch[1])
        return LockContents(tuple(found.values()))
