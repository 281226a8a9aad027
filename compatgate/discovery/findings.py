"""What is found in files, and the stack that it amounts to."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from compatgate.core.arch import Arch
from compatgate.core.facts import CudaArch
from compatgate.core.gpu_code import how_it_runs
from compatgate.discovery.gpucode import GpuCode, in_order
from compatgate.discovery.libraries import library_observation
from compatgate.discovery.observed import Conflict, Observation
from compatgate.discovery.python_env import read_answer
from compatgate.discovery.settle import settle

_SONAMES = {
    "libcudart": "cuda",
    "libcudnn": "cudnn",
    "libnccl": "nccl",
    "libcublas": "cublas",
    "libnvinfer": "tensorrt",
}
_SONAME = re.compile(r"(libcudart|libcudnn|libnccl|libcublas|libnvinfer)\.so\.(\d+)(?:\.\d+)?")
_HASHED = re.compile(r"-[0-9a-f]{8,}(?=\.so)")
"""auditwheel puts a hash in the name of a library that it copies into a wheel."""
_OF_NVIDIA = re.compile(
    r"lib(?:cu(?:blas|dnn|fft|rand|solver|sparse|tensor)|nccl|nvinfer|npp|nvjpeg|nvshmem)"
)


class CodeFile(Struct, frozen=True):
    """A file with GPU code.

    Attributes:
        origin: the file, as people know it.
        owner: the distribution that brought it, ``""`` when none is known to have.
    """

    origin: str
    owner: str
    code: GpuCode


class Findings(Struct):
    """What was found.

    Attributes:
        observations: versions of components.
        majors: components of which only the major version is known, from a library's name.
        files: those with GPU code.
        unread: files that may hold GPU code and cannot be read: name and why.
    """

    observations: list[Observation] = []
    majors: list[Observation] = []
    files: list[CodeFile] = []
    unread: list[Conflict] = []

    def add_library(self, path: str, *, how: str = "") -> None:
        """Take what the name of a library tells; ``how`` explains where the name stands."""
        clean = _HASHED.sub("", path)
        seen = library_observation(clean)
        if seen:
            self.observations.append(
                Observation(seen.component, seen.version, f"{path}{how}", seen.confidence)
            )
        elif match := _SONAME.fullmatch(clean.rpartition("/")[2]):
            origin = f"{path}{how}"
            self.majors.append(Observation(_SONAMES[match[1]], match[2], origin, "metadata"))

    def add_needed(self, origin: str, needed: Iterable[str]) -> None:
        """Take what a library needs: CUDA's major, from ``libcudart.so.12``."""
        for name in needed:
            if match := _SONAME.fullmatch(_HASHED.sub("", name)):
                how = f"{origin}: needs {name}"
                self.majors.append(Observation(_SONAMES[match[1]], match[2], how, "derived"))

    def add_packages(self, packages: dict[str, str], origin: str) -> None:
        """Take what the metadata of Python distributions states: normalised name to version."""
        answer = read_answer({"packages": packages}, origin)
        self.observations += (o for o in answer.observations if o.component != "python")

    def add_code(self, origin: str, code: GpuCode, owner: str = "") -> None:
        """Take a file's GPU code; a file without is not kept."""
        if code.entries:
            self.files.append(CodeFile(origin, owner, code))

    def extend(self, other: Findings) -> None:
        """Take what was found elsewhere."""
        self.observations += other.observations
        self.majors += other.majors
        self.files += other.files
        self.unread += other.unread

    def add_unread(self, origin: str, why: str) -> None:
        """Note a file that cannot be read."""
        message = f"{origin} cannot be read and may hold GPU code: {why}"
        self.unread.append(Conflict("arch", message))


class Inspection(Struct, frozen=True):
    """A stack, where each part of it was seen, and where witnesses disagree."""

    stack: dict[str, Any]
    observations: tuple[Observation, ...]
    conflicts: tuple[Conflict, ...]

    def to_json(self) -> dict[str, Any]:
        """``{"stack": {...}, "observations": [...], "conflicts": [...]}``."""
        return {
            "stack": self.stack,
            "observations": [observation.to_json() for observation in self.observations],
            "conflicts": [conflict.to_json() for conflict in self.conflicts],
        }


def conclude(found: Findings, facts: CudaArch | None = None) -> Inspection:
    """The stack that the findings amount to.

    Args:
        found: all of them.
        facts: where code runs; without them the code of several distributions is not compared.
    """
    observations = list(found.observations)
    compiled = _toolkits(found.files, facts)
    if compiled and not any(o.component == "cuda" for o in observations):
        observations.append(max(compiled, key=lambda o: _numbers(o.version)))
    arch, disagreements = _arch(found.files, facts)
    stack, conflicts = settle(observations, [code.name for code in arch])
    if found.files and "arch" not in stack and any(f.code.arch for f in found.files):
        stack["arch"] = []
    seen = [_seen(file) for file in found.files]
    return Inspection(
        stack,
        tuple(dict.fromkeys([*observations, *found.majors, *seen])),
        (
            *conflicts,
            *_other_majors(stack, found.majors),
            *_newer_ptx(stack, _toolkits([f for f in found.files if f.code.ptx_isa], facts)),
            *disagreements,
            *found.unread,
        ),
    )


def _seen(file: CodeFile) -> Observation:
    """A file's code as an observation of ``arch``; what no driver runs is in parentheses."""
    runs = [code.name for code in file.code.arch]
    only_linked = sorted({e.name for e in file.code.entries if e.kind == "lto"})
    text = "+".join(runs) + (f" ({' '.join(only_linked)})" if only_linked else "")
    return Observation("arch", text.strip(), file.origin, "measured")


def _toolkits(files: Iterable[CodeFile], facts: CudaArch | None) -> list[Observation]:
    """The newest toolkit that each file's code records, or that first had its PTX ISA version."""
    found = []
    series = {t.ptx_isa: cuda for cuda, t in facts.toolkits.items()} if facts else {}
    for file in files:
        isa, cuda = file.code.ptx_isa, file.code.cuda
        if cuda:
            found.append(Observation("cuda", cuda, f"{file.origin}: compiled by it", "derived"))
        elif isa and isa in series:
            how = f"{file.origin}: has PTX ISA {isa}"
            found.append(Observation("cuda", series[isa], how, "derived"))
    return found


def _arch(files: list[CodeFile], facts: CudaArch | None) -> tuple[tuple[Arch, ...], list[Conflict]]:
    """Code that runs wherever every distribution's code runs; NVIDIA's libraries do not vote."""
    groups: dict[str, set[Arch]] = {}
    for file in [f for f in files if not _of_nvidia(f)] or files:
        groups.setdefault(file.owner, set()).update(file.code.arch)
    groups = {owner: codes for owner, codes in groups.items() if codes}
    union = in_order(set().union(*groups.values()))
    if facts is None or len(groups) < 2:
        return union, []
    common = tuple(c for c in union if all(_runs(c, g, facts) for g in groups.values()))
    lacking = {
        owner: [c.name for c in union if not _runs(c, codes, facts)]
        for owner, codes in groups.items()
    }
    message = "not all GPU code runs on the same GPUs: " + "; ".join(
        f"{owner or 'loose files'} has nothing for {' '.join(names)}"
        for owner, names in lacking.items()
        if names
    )
    decided = "+".join(code.name for code in common)
    return common, [] if len(common) == len(union) else [Conflict("arch", message, decided)]


def _runs(code: Arch, carried: set[Arch], facts: CudaArch) -> bool:
    """Whether other code runs on all GPUs that this code was made for."""
    if code in carried:
        return True
    if code.kind == "sass":
        return how_it_runs(carried, code.capability, facts) is not None
    return any(
        c.kind == "ptx" and not c.suffix and c.capability <= code.capability for c in carried
    )


def _of_nvidia(file: CodeFile) -> bool:
    name = file.origin.rpartition("/")[2]
    return file.owner.startswith("nvidia-") or bool(_OF_NVIDIA.match(name))


def _other_majors(stack: dict[str, Any], majors: Iterable[Observation]) -> list[Conflict]:
    return [
        Conflict(
            seen.component,
            f"the stack has {seen.component} {stack[seen.component]}, {seen.origin} says "
            f"{seen.version}",
            stack[seen.component],
        )
        for seen in dict.fromkeys(majors)
        if seen.component in stack and stack[seen.component].partition(".")[0] != seen.version
    ]


def _newer_ptx(stack: dict[str, Any], compiled: Iterable[Observation]) -> list[Conflict]:
    """PTX of a newer toolkit than the stack's, which an older driver cannot compile."""
    cuda = stack.get("cuda")
    return [
        Conflict("cuda", f"the stack has CUDA {cuda}, {o.origin}, of CUDA {o.version}", cuda)
        for o in dict.fromkeys(compiled)
        if cuda and _numbers(o.version)[:2] > _numbers(cuda)[:2]
    ]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0]))
