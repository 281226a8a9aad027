"""The vendors' published facts, in the shape that the rules read.

A record keeps its source; ``confidence`` is ``published`` (the vendor says so), ``metadata`` (read
from the release itself) or ``derived`` (measured or concluded by others). ``None`` means that no
source was found: a rule meeting it answers unknown or stays silent, and never guesses.

Every framework is a `Framework`, whatever its project publishes, so a rule about frameworks is
written once.
"""

from __future__ import annotations

from compatgate.core.facts.common import Pair, Reference, Source
from compatgate.core.facts.drivers import (
    Branch,
    CompatPackage,
    CudaDriver,
    DriverBranches,
    ForwardCompat,
    MinorCompat,
    Toolkit,
)
from compatgate.core.facts.frameworks import Build, Framework, KnownIssue, KnownIssues, Pin, Release
from compatgate.core.facts.gpus import CapabilityFact, CudaArch, Gpu, Gpus, ToolkitArch
from compatgate.core.facts.libraries import (
    Cudnn,
    CudnnBuild,
    CudnnRelease,
    CudnnRow,
    Nccl,
    NcclRelease,
)
from compatgate.core.facts.tables import Facts

__all__ = [
    "Branch",
    "Build",
    "CapabilityFact",
    "CompatPackage",
    "CudaArch",
    "CudaDriver",
    "Cudnn",
    "CudnnBuild",
    "CudnnRelease",
    "CudnnRow",
    "DriverBranches",
    "Facts",
    "ForwardCompat",
    "Framework",
    "Gpu",
    "Gpus",
    "KnownIssue",
    "KnownIssues",
    "MinorCompat",
    "Nccl",
    "NcclRelease",
    "Pair",
    "Pin",
    "Reference",
    "Release",
    "Source",
    "Toolkit",
    "ToolkitArch",
]
