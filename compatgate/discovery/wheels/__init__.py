"""Wheels on package indexes, at URLs and in files: measured where they are, in little memory."""

from __future__ import annotations

from compatgate.discovery.wheels.index import IndexFile, PackageIndex, choose, configured
from compatgate.discovery.wheels.measure import (
    Options,
    measure_file,
    measure_path,
    toolkits_of_ptx,
    wheel_at,
)
from compatgate.discovery.wheels.memory import default_folder
from compatgate.discovery.wheels.on_demand import (
    Measured,
    Sources,
    Wanted,
    attempt,
    find_known,
    measure_all,
    stated,
    why_not,
)
from compatgate.discovery.wheels.progress import Progress

__all__ = [
    "IndexFile",
    "Measured",
    "Options",
    "PackageIndex",
    "Progress",
    "Sources",
    "Wanted",
    "attempt",
    "choose",
    "configured",
    "default_folder",
    "find_known",
    "measure_all",
    "measure_file",
    "measure_path",
    "stated",
    "toolkits_of_ptx",
    "wheel_at",
    "why_not",
]
