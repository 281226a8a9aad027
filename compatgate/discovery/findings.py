"""Gather the findings in files, and conclude one stack.

Every source (an image, a wheel, a folder, a running host) gathers `Findings`. `conclude` makes
one stack of them: `settle` says which witness of a version decides, `find_common_code` which GPU
code runs wherever all of it must. The result is an `Inspection`: the stack, where each part was
seen, where witnesses disagree, and which questions stay open.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from compatgate.core.components import is_framework
from compatgate.core.facts.nvidia import CudaArch
from compatgate.core.facts.packages import NO_KNOWN_PACKAGES
from compatgate.core.facts.records import Record
from compatgate.core.gpu_code import Arch, find_run_mode
from compatgate.discovery.gpucode import GpuCode, in_order
from compatgate.discovery.libraries import observe_library, observe_major
from compatgate.discovery.observations import Conflict, Observation, settle
from compatgate.discovery.python_env import read_answer

_NVIDIA_CODE = re.compile(
    r"lib(?:cu(?:blas|dnn|fft|rand|solver|sparse|tensor)|nccl|nvinfer|npp|nvjpeg|nvshmem)"
    r"|(?:cu(?:blas|dnn|fft|rand|solver|sparse|tensor)|nvinfer|npp|nvjpeg)\w*(?:-[0-9a-f]{8,})?\.dll"
)
_EMBEDDED_CODE = re.compile(r"libtorch_(?:cuda_linalg|nvshmem)\.so")
"""Code of MAGMA and NVSHMEM within PyTorch, which targets other GPUs: the wheel of 2.10 has
MAGMA for 5.0 and nothing else below 7.0."""


class CodeFile(Struct, frozen=True):
    """A file with GPU code, with its owner, newest PTX ISA and compiling toolkit where known."""

    origin: str
    owner: str
    arch: tuple[Arch, ...]
    linked: tuple[str, ...] = ()
    ptx_isa: str | None = None
    cuda: str | None = None

    @classmethod
    def of(cls, origin: str, owner: str, code: GpuCode) -> CodeFile:
        """Summarise the GPU code of a file, without its thousands of entries."""
        linked = sorted({entry.name for entry in code.entries if entry.kind == "lto"})
        return cls(origin, owner, code.arch, tuple(linked), code.ptx_isa, code.cuda)

    def seen(self) -> Observation:
        """Return the code as an observation of ``arch``; link-time code is in parentheses."""
        names = "+".join(code.name for code in self.arch)
        linked = f" ({' '.join(self.linked)})" if self.linked else ""
        return Observation("arch", f"{names}{linked}".strip(), self.origin, "measured")


def find_common_code(
    files: Sequence[CodeFile], facts: CudaArch | None
) -> tuple[tuple[Arch, ...], list[Conflict]]:
    """Return the code that runs where every distribution's code runs; ignore embedded libraries.

    Without facts, which say where code runs, return the union of all code.
    """
    groups: dict[str, set[Arch]] = {}
    for file in [f for f in files if not is_embedded(f)] or files:
        groups.setdefault(file.owner, set()).update(file.arch)
    groups = {owner: codes for owner, codes in groups.items() if codes}
    union = in_order(set().union(*groups.values()))
    if facts is None or len(groups) < 2:
        return union, []
    common = tuple(c for c in union if all(_covers(c, g, facts) for g in groups.values()))
    if len(common) == len(union):
        return union, []
    lacking = "; ".join(
        f"{owner or 'loose files'} has nothing for {' '.join(missing)}"
        for owner, codes in groups.items()
        if (missing := [c.name for c in union if not _covers(c, codes, facts)])
    )
    message = f"not all GPU code runs on the same GPUs: {lacking}"
    return common, [Conflict("arch", message, "+".join(code.name for code in common))]


def find_toolkits(files: Iterable[CodeFile], facts: CudaArch | None) -> list[Observation]:
    """Return the toolkit that each file's code records or that its PTX ISA version needs."""
    toolkits = []
    series = {t.ptx_isa: cuda for cuda, t in facts.toolkits.items()} if facts else {}
    for file in files:
        cuda = file.cuda or series.get(file.ptx_isa or "")
        if cuda:
            how = "compiled by it" if file.cuda else f"has PTX ISA {file.ptx_isa}"
            toolkits.append(Observation("cuda", cuda, f"{file.origin}: {how}", "derived"))
    return toolkits


def _covers(code: Arch, carried: set[Arch], facts: CudaArch) -> bool:
    if code in carried:
        return True
    if code.kind == "sass":
        return find_run_mode(carried, code.capability, facts) is not None
    return any(
        c.kind == "ptx" and not c.suffix and c.capability <= code.capability for c in carried
    )


def is_embedded(file: CodeFile) -> bool:
    """Return whether a file belongs to NVIDIA or to a library within PyTorch: not compared."""
    name = file.origin.rpartition("/")[2]
    return bool(
        file.owner.startswith("nvidia-") or _NVIDIA_CODE.match(name) or _EMBEDDED_CODE.match(name)
    )


class Findings(Struct):
    """The findings of one source: per component, the observation that decides comes first.

    ``majors`` are known by their major version only, from a library's name.
    """

    observations: list[Observation] = []
    majors: list[Observation] = []
    files: list[CodeFile] = []
    measured: dict[str, Record] = {}
    owned: dict[str, str] = {}
    open: list[str] = []

    def add_library(self, path: str, *, how: str = "") -> None:
        """Add the version that a library's name states; ``how`` explains where the name stands."""
        origin = f"{path}{how}"
        if observation := observe_library(path):
            self.observations.append(replace(observation, origin=origin))
        elif observation := observe_major(path):
            self.majors.append(replace(observation, origin=origin))

    def add_needed(self, origin: str, needed: Iterable[str]) -> None:
        """Add CUDA's major version from the libraries that a file needs, as ``libcudart.so.12``."""
        for name in needed:
            if observation := observe_major(name):
                how = f"{origin}: needs {name}"
                self.majors.append(replace(observation, origin=how, confidence="derived"))

    def add_packages(
        self, packages: dict[str, str], origin: str, conda: Iterable[str] = ()
    ) -> None:
        """Add the versions that the metadata of Python distributions states."""
        answer = read_answer({"packages": packages, "conda": conda}, origin, NO_KNOWN_PACKAGES)
        self.observations += (o for o in answer.observations if o.component != "python")

    def add_code(self, origin: str, code: GpuCode, owner: str = "") -> None:
        """Add the GPU code of a file; ignore a file without GPU code."""
        if code.entries:
            self.files.append(CodeFile.of(origin, owner, code))

    def add_unread(self, origin: str, why: str) -> None:
        """Add a sentence about a file that cannot be read."""
        self.open.append(f"{origin} cannot be read and may hold GPU code: {why}")

    def extend(self, other: Findings) -> None:
        """Add the findings of another source."""
        self.observations += other.observations
        self.majors += other.majors
        self.files += other.files
        self.measured = {**other.measured, **self.measured}
        self.owned |= other.owned
        self.open += other.open


class Inspection(Struct, frozen=True):
    """A stack as requests have it, the origin of each part, doubts, and which witness decided."""

    stack: dict[str, Any]
    observations: tuple[Observation, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    open: tuple[str, ...] = ()

    @property
    def doubts(self) -> tuple[Conflict, ...]:
        """Return the conflicts, and each open question as an undecided conflict."""
        return (*self.conflicts, *(Conflict("open", sentence) for sentence in self.open))

    def to_json(self) -> dict[str, Any]:
        """Return ``{"stack": {...}, "observations": [...], "conflicts": [...]}``."""
        return {
            "stack": self.stack,
            "observations": to_builtins([*self.observations]),
            "conflicts": to_builtins([*self.doubts]),
        }


def conclude(found: Findings, facts: CudaArch | None = None) -> Inspection:
    """Return the stack that the findings amount to.

    Files in a package's record count for that package alone; ``arch`` is the code of the other
    files.
    """
    observations = list(found.observations)
    compiled = find_toolkits(found.files, facts)
    observations = _add_compiled(observations, compiled)
    measured = select_records(settle(observations)[0], found.measured)
    loose = [file for file in found.files if found.owned.get(file.origin) not in measured]
    if measured:  # code that only supports a package does not decide alone
        loose = [file for file in loose if not is_embedded(file)]
    arch, disagreements = find_common_code(loose, facts)
    stack, conflicts = settle(observations, [code.name for code in arch])
    if measured:
        stack["measured"] = {name: record.to_stack() for name, record in measured.items()}
    if any(file.arch for file in loose):
        stack.setdefault("arch", [])  # code exists, but no architecture is common to all files
    others = [
        Conflict(
            seen.component,
            f"the stack has {seen.component} {stack[seen.component]}, {seen.origin} says "
            f"{seen.version}",
            stack[seen.component],
        )
        for seen in dict.fromkeys(found.majors)
        if seen.component in stack and stack[seen.component].partition(".")[0] != seen.version
    ]
    with_ptx = [file for file in found.files if file.ptx_isa]
    cuda = stack.get("cuda")
    newer = (  # PTX that an older driver cannot compile
        Conflict("cuda", f"the stack has CUDA {cuda}, {o.origin}, of CUDA {o.version}", cuda)
        for o in dict.fromkeys(find_toolkits(with_ptx, facts))
        if cuda and _version_numbers(o.version)[:2] > _version_numbers(cuda)[:2]
    )
    return Inspection(
        stack,
        tuple(dict.fromkeys([*observations, *found.majors, *(f.seen() for f in found.files)])),
        (*conflicts, *others, *newer, *disagreements),
        tuple(found.open),
    )


def _add_compiled(
    observations: list[Observation], compiled: Sequence[Observation]
) -> list[Observation]:
    """Add the newest CUDA that compiled the code, where nothing better says the CUDA.

    A framework brings its own. Libraries beside code of a newer major do not show what it needs.
    """
    stated = [o.version for o in observations if o.component == "cuda"]
    if not compiled:
        return observations
    newest = max(compiled, key=lambda o: _version_numbers(o.version))
    if not stated:
        return [*observations, newest]
    newer = _version_numbers(newest.version)[0] > max(_version_numbers(v)[0] for v in stated)
    if newer and not any(is_framework(o.component) for o in observations):
        return [replace(newest, confidence="metadata"), *observations]
    return observations


def select_records(stack: dict[str, Any], measured: Mapping[str, Record]) -> dict[str, Record]:
    """Return the records of the stack's releases; another witness may have decided a version."""

    def public(version: str) -> str:
        return version.partition("+")[0].partition(".post")[0]

    return {
        name: record
        for name, record in measured.items()
        if name in stack and public(stack[name]) == public(record.version)
    }


def _version_numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0]))
