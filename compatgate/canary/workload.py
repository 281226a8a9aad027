"""A workload as its ``workload.toml`` declares it, and suites of workloads."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from msgspec import Struct

from compatgate.core.facts.nvidia import PeakKind

Better = Literal["lower", "higher", "either"]


class MetricSpec(Struct, frozen=True):
    """A number that the workload measures.

    Attributes:
        unit: as the program prints it, ``ms``, ``GB/s``, ``1`` for a bare number.
        tolerance: relative change that counts as a regression, 0.05 for 5 %.
        repetitions: values that one run must give to be judged; what the judge promises of its
            errors (docs/judge.md) holds from 30 on.
        peak: of the GPU's published peaks, the one that it is shown as a share of; values are of
            one GPU, and of memory they count what is read and what is written.
    """

    unit: str
    better: Better
    tolerance: float = 0.05
    repetitions: int = 30
    description: str = ""
    peak: PeakKind | None = None


class ImageSpec(Struct, frozen=True):
    """Which container image a workload runs in.

    Attributes:
        inside: it can run inside the image under test: the workload's folder is then there,
            read-only, as `FOLDER`, and the image needs what ``command`` calls.
        context: build context relative to the workload's folder, with a ``Dockerfile``; used
            where the workload cannot run inside the image under test, or there is none. It is
            built on the images that the ``Dockerfile`` names, never on the image under test.
        reference: an image to use instead of a build context, whatever is under test.
        network: the build needs the network, which the host must allow; else it has none.
        tool: folder of what the context builds; with an image under test the job runs in that
            image, and has the folder there, read-only, at the same place.
    """

    inside: bool = False
    context: str | None = None
    reference: str | None = None
    network: bool = False
    tool: str | None = None


class Limits(Struct, frozen=True):
    """What a container may use.

    Attributes:
        memory: bytes, swap included.
        shm: bytes of ``/dev/shm``.
        tmp: bytes of ``/tmp``, the one place to write.
        pids: processes and threads.
        cpus: cores; None: all.
        output: bytes of standard output and error that are kept; the rest is counted and dropped.
    """

    memory: int = 8 << 30
    shm: int = 1 << 30
    tmp: int = 1 << 30
    pids: int = 1024
    cpus: float | None = None
    output: int = 16 << 20


class Workload(Struct, frozen=True):
    """A canary program and what it promises to report.

    Attributes:
        folder: where ``workload.toml`` lies; None: read from elsewhere.
        catches: failures that it is there to find, a phrase each.
        command: argument vector; ``{seed}`` is replaced. It is called in the workload's folder.
        gpus: how many it needs on each node; a workload that needs none is never evidence about a
            GPU.
        nodes: how many it runs on at once, the same program on each.
        timeout_s: seconds from start to end, after which it is stopped.
        seeds: it is run once for each.
        environment: variables set in the container.
        adapter: how its output is read; ``jsonl`` is the line protocol.
        user: ``nobody``, where the image names no user of its own; ``image``, root included.
        digest: of the folder's content, ``sha256:...``; part of what a baseline is kept for.
    """

    name: str
    description: str
    command: tuple[str, ...]
    image: ImageSpec
    catches: tuple[str, ...] = ()
    gpus: int = 0
    nodes: int = 1
    timeout_s: int = 600
    seeds: tuple[int, ...] = (0,)
    environment: dict[str, str] = {}
    limits: Limits = Limits()
    metrics: dict[str, MetricSpec] = {}
    checks: dict[str, str] = {}
    adapter: str = "jsonl"
    user: Literal["nobody", "image"] = "nobody"
    folder: Path | None = None
    digest: str = ""


class Suite(Struct, frozen=True):
    """Workloads that are run together, in this order; evidence is about a suite."""

    name: str
    description: str
    workloads: tuple[str, ...]


FOLDER = "/compatgate"
"""Where a workload's folder is inside its container."""
