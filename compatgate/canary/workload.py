"""Describe a workload as its ``workload.toml`` declares it, and suites of workloads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from compatgate.core.facts.nvidia import PeakKind
from compatgate.core.needs import Needs
from compatgate.documents.specs import (
    LINE_PATTERN,
    NAME_PATTERN,
    SLUG_PATTERN,
    TEXT_PATTERN,
    TOOL_PATTERN,
    VARIABLE_PATTERN,
)

Better = Literal["lower", "higher", "either"]
Slug = Annotated[str, Meta(pattern=SLUG_PATTERN)]
Line = Annotated[str, Meta(pattern=LINE_PATTERN)]
_Name = Annotated[str, Meta(pattern=NAME_PATTERN)]
_Variable = Annotated[str, Meta(pattern=VARIABLE_PATTERN)]
_Text = Annotated[str, Meta(pattern=TEXT_PATTERN, max_length=8192)]
_Seed = Annotated[int, Meta(ge=0, le=4_294_967_295)]


class MetricSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """A metric that the workload measures.

    Attributes:
        unit: as the program prints it, ``ms``, ``GB/s``; ``1`` for a bare number.
        tolerance: relative change that counts as a regression, 0.05 for 5 %.
        repetitions: values that one run must report to be judged; the judge's error rates
            (docs/explanation/judge.md) hold from 30 on.
        peak: published peak of the GPU to show a share of. Values must be of one GPU; memory values
            count bytes read and bytes written.
        overlaps: values are times that overlap, as those of concurrent requests do, and may add up
            to more than the program lasts.
    """

    unit: Line
    better: Better
    tolerance: Annotated[float, Meta(gt=0, le=10)] = 0.05
    repetitions: Annotated[int, Meta(ge=1, le=100_000)] = 30
    description: _Text = ""
    peak: PeakKind | None = None
    overlaps: bool = False


class ImageSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """Container image of a workload, as ``workload.schema.json`` describes it.

    A build context is used if the workload cannot run inside the image under test, or there is
    none. It is built on the images that its ``Dockerfile`` names, never on the image under test.
    """

    inside: bool = False
    context: Line | None = None
    reference: Line | None = None
    network: bool = False
    tool: Annotated[str, Meta(pattern=TOOL_PATTERN)] | None = None


class Limits(Struct, frozen=True):
    """Resource limits of a container; ``/tmp`` is its only writable path.

    ``cpus`` None is all cores. Output and errors beyond ``output`` bytes are counted and dropped.
    """

    memory: int = 8 << 30
    shm: int = 1 << 30
    tmp: int = 1 << 30
    pids: int = 1024
    cpus: float | None = None
    output: int = 16 << 20


class Program(Struct, frozen=True):
    """What ``workload.toml`` states of a canary program in the form that the engine needs.

    ``gpus`` are needed on each node; a workload that needs none is never evidence about a GPU.
    """

    name: Slug
    description: Line
    command: Annotated[tuple[Line, ...], Meta(min_length=1, max_length=256)]
    image: ImageSpec
    catches: Annotated[tuple[Line, ...], Meta(max_length=64)] = ()
    gpus: Annotated[int, Meta(ge=0, le=64)] = 0
    nodes: Annotated[int, Meta(ge=1, le=1024)] = 1
    seeds: Annotated[tuple[_Seed, ...], Meta(min_length=1, max_length=32)] = (0,)
    environment: dict[_Variable, _Text] = {}
    metrics: Annotated[dict[_Name, MetricSpec], Meta(max_length=256)] = {}
    checks: Annotated[dict[_Name, Line], Meta(max_length=256)] = {}
    host_checks: Annotated[tuple[_Name, ...], Meta(max_length=256)] = ()
    adapter: Slug = "jsonl"
    user: Literal["nobody", "image"] = "nobody"
    interpreter: Literal["image", "worker"] = "image"
    paired: bool = True


class Workload(Program, frozen=True):
    """A canary program, its limits and its content.

    Attributes:
        needs: what it needs of each GPU; a run on a GPU that cannot is refused.
        timeout_s: seconds from start to end, after which the program is stopped.
        proofs: what must answer the worker's challenge, ``python`` or a framework; () for a program
            that does not use the harness, whose report is its own word.
        folder: folder of ``workload.toml``; None if it was read from elsewhere.
        digest: digest of the folder's content, ``sha256:...``; part of a baseline's key.
    """

    needs: Needs | None = None
    timeout_s: int = 600
    limits: Limits = Limits()
    proofs: tuple[str, ...] = ()
    folder: Path | None = None
    digest: str = ""

    @property
    def content(self) -> str:
        """Return its name with the start of its digest, as baselines name it."""
        return name_content(self.name, self.digest)

    @property
    def tests_image(self) -> bool:
        """Return whether it runs in the image under test, where a run names one."""
        own = self.image
        return own.inside or bool(own.tool and own.reference is None)


def name_content(name: str, digest: str) -> str:
    """Return the name of a workload's content, ``gemm@0f3c...``."""
    return f"{name}@{digest.removeprefix('sha256:')[:12]}"


class Suite(Struct, frozen=True):
    """Workloads that run together, in this order; evidence is about a suite."""

    name: str
    description: str
    workloads: tuple[str, ...]


FOLDER = "/compatgate"
"""Path of a workload's folder inside its container."""
