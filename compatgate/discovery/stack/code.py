"""GPU code of several files: what runs wherever all of it must run, and which toolkit made it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from compatgate.core.arch import Arch
from compatgate.core.facts import CudaArch
from compatgate.core.gpu_code import how_it_runs
from compatgate.discovery.gpucode import GpuCode, in_order
from compatgate.discovery.observed import Conflict, Observation

_OF_NVIDIA = re.compile(
    r"lib(?:cu(?:blas|dnn|fft|rand|solver|sparse|tensor)|nccl|nvinfer|npp|nvjpeg|nvshmem)"
    r"|(?:cu(?:blas|dnn|fft|rand|solver|sparse|tensor)|nvinfer|npp|nvjpeg)\w*(?:-[0-9a-f]{8,})?\.dll"
)
_OF_OTHERS = re.compile(r"libtorch_(?:cuda_linalg|nvshmem)\.so")
"""MAGMA's and NVSHMEM's code within PyTorch, for GPUs of their own choice: the wheel of 2.10 has
MAGMA for 5.0 and nothing else below 7.0."""


class CodeFile(Struct, frozen=True):
    """A file with GPU code.

    Attributes:
        origin: the file, as people know it.
        owner: the distribution that brought it, ``""`` when none is known to have.
        arch: what a driver runs.
        linked: names of link-time code, which no driver runs.
        ptx_isa: newest PTX ISA version, None without PTX.
        cuda: toolkit that made it, None where none is recorded.
    """

    origin: str
    owner: str
    arch: tuple[Arch, ...]
    linked: tuple[str, ...] = ()
    ptx_isa: str | None = None
    cuda: str | None = None

    @classmethod
    def of(cls, origin: str, owner: str, code: GpuCode) -> CodeFile:
        """What counts of the code of a file, without its thousands of entries."""
        linked = sorted({entry.name for entry in code.entries if entry.kind == "lto"})
        return cls(origin, owner, code.arch, tuple(linked), code.ptx_isa, code.cuda)

    def seen(self) -> Observation:
        """The code as an observation of ``arch``; what no driver runs is in parentheses."""
        names = "+".join(code.name for code in self.arch)
        linked = f" ({' '.join(self.linked)})" if self.linked else ""
        return Observation("arch", f"{names}{linked}".strip(), self.origin, "measured")


def common_code(
    files: Sequence[CodeFile], facts: CudaArch | None
) -> tuple[tuple[Arch, ...], list[Conflict]]:
    """Code that runs wherever every distribution's code runs; libraries of others do not vote.

    Args:
        files: with GPU code.
        facts: where code runs; without them the code of several distributions is united.
    """
    groups: dict[str, set[Arch]] = {}
    for file in [f for f in files if not is_of_others(f)] or files:
        groups.setdefault(file.owner, set()).update(file.arch)
    groups = {owner: codes for owner, codes in groups.items() if codes}
    union = in_order(set().union(*groups.values()))
    if facts is None or len(groups) < 2:
        return union, []
    common = tuple(c for c in union if all(_runs(c, g, facts) for g in groups.values()))
    if len(common) == len(union):
        return union, []
    lacking = "; ".join(
        f"{owner or 'loose files'} has nothing for {' '.join(missing)}"
        for owner, codes in groups.items()
        if (missing := [c.name for c in union if not _runs(c, codes, facts)])
    )
    message = f"not all GPU code runs on the same GPUs: {lacking}"
    return common, [Conflict("arch", message, "+".join(code.name for code in common))]


def made_by(files: Iterable[CodeFile], facts: CudaArch | None) -> list[Observation]:
    """The newest toolkit that each file's code records, or that first had its PTX ISA version."""
    found = []
    series = {t.ptx_isa: cuda for cuda, t in facts.toolkits.items()} if facts else {}
    for file in files:
        if file.cuda:
            how = f"{file.origin}: compiled by it"
            found.append(Observation("cuda", file.cuda, how, "derived"))
        elif file.ptx_isa and file.ptx_isa in series:
            how = f"{file.origin}: has PTX ISA {file.ptx_isa}"
            found.append(Observation("cuda", series[file.ptx_isa], how, "derived"))
    return found


def _runs(code: Arch, carried: set[Arch], facts: CudaArch) -> bool:
    """Whether other code runs on all GPUs that this code was made for."""
    if code in carried:
        return True
    if code.kind == "sass":
        return how_it_runs(carried, code.capability, facts) is not None
    return any(
        c.kind == "ptx" and not c.suffix and c.capability <= code.capability for c in carried
    )


def is_of_others(file: CodeFile) -> bool:
    """Tell whether a file is NVIDIA's, or of a library within PyTorch: it does not vote."""
    name = file.origin.rpartition("/")[2]
    if file.owner.startswith("nvidia-"):
        return True
    return bool(_OF_NVIDIA.match(name) or _OF_OTHERS.match(name))
