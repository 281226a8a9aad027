"""What carries GPU code: the workload as stated, or the published builds of its frameworks."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from compatgate.core.arch import Arch
from compatgate.core.facts import Pair
from compatgate.core.frameworks import Found
from compatgate.core.stack import Stack
from compatgate.core.target import Cpu, Os
from compatgate.core.versions import Version


class Carrier(Struct, frozen=True):
    """A part of a workload with GPU code that runs by itself.

    Attributes:
        code: all that it has.
        ptx_cuda: the toolkit that made its PTX; None where that is not known.
    """

    code: tuple[Arch, ...]
    ptx_cuda: Pair | None


def carriers_of(
    stack: Stack, frameworks: Iterable[Found], cuda: Version | None, os: Os, cpu: Cpu
) -> list[Carrier]:
    """The parts of a stack whose GPU code is known.

    A published build brings the PTX that its own toolkit made, whatever runtime lies beside it: a
    TensorFlow of CUDA 12.5 needs no newer driver for libraries of CUDA 12.9. Code that is stated is
    taken for that of the stack's CUDA.

    Args:
        stack: that may state its code.
        frameworks: of the stack, in the facts; what is stated replaces their code.
        cuda: of the stack.
        os: of the pool; wheels for Windows have other code.
        cpu: of the pool; wheels for Arm have, too.
    """
    own = cuda.major_minor if cuda else None
    if stack.arch is not None:
        return [Carrier(stack.arch, own)]
    builds = [found.build for found in frameworks if found.build and found.build.sass]
    return [
        Carrier(build.code_on(os, cpu), (build.ptx_cuda or build.cuda or own) if cuda else None)
        for build in builds
    ]
