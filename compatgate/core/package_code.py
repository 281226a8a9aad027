"""Whether the code of a package runs on a GPU, by the libraries that it loads."""

from __future__ import annotations

from compatgate.core.arch import Arch, parse_arch
from compatgate.core.facts import CudaArch, Pair
from compatgate.core.facts.records import Library
from compatgate.core.gpu_code import HowItRuns, how_it_runs
from compatgate.core.packages import GpuPackage, loaded_groups
from compatgate.core.versions import Version, show

_STRAY = 0.04
"""Share of a library's translation units up to which code that runs on a GPU is no support for it:
vLLM 0.11.2 has ``sm_52`` in one unit of 88. (cuSPARSELt has 6 % of its units for an A100 alone.)"""


def runs_here(library: Library, device: Pair, facts: CudaArch) -> HowItRuns | None:
    """Judge whether and how a library runs on a GPU, by its translation units.

    Units with nothing but code for other single architectures (``sm_90a``) are used there alone and
    do not count.

    Returns:
        ``ptx`` where the driver must compile some of it; None where it does not run.
    """
    counts: dict[HowItRuns | None, int] = {"sass": 0, "ptx": 0, None: 0}
    for names, units in library.code_of_units:
        codes = [code for name in names for code in parse_arch(name)]
        how = how_it_runs(codes, device, facts)
        if how or not all(code.suffix for code in codes):
            counts[how] += units
    stray = _STRAY * sum(counts.values())
    if counts["sass"] + counts["ptx"] <= stray:
        return None
    return "ptx" if counts["ptx"] > stray else "sass"


Ways = tuple[tuple[Library, HowItRuns | None], ...]
"""A library that a package loads, or alternatives of one, and how each runs on a GPU."""


def ways_here(
    package: GpuPackage, device: Pair, cuda: Version | None, facts: CudaArch
) -> tuple[Ways, ...]:
    """Judge every library that a package loads, alternatives together.

    Where the names of alternatives say a CUDA (``libbitsandbytes_cuda128.so``), the one for the
    stack's CUDA stands alone, or the nearest of its major, where there is one.
    """
    key = (device, cuda.major_minor if cuda else None)
    if key not in package.memory:
        package.memory[key] = tuple(
            tuple((library, runs_here(library, device, facts)) for library in group)
            for group in loaded_groups(package, package.libraries, cuda)
        )
    found: tuple[Ways, ...] = package.memory[key]
    return found


def is_stray(groups: tuple[Ways, ...]) -> bool:
    """Tell whether the libraries that run are none, or a stray part of all translation units."""
    units = [(any(how for _, how in group), group[0][0].units) for group in groups]
    return sum(count for runs, count in units if runs) <= _STRAY * sum(count for _, count in units)


def toolkit_targets(package: GpuPackage, device: Pair, facts: CudaArch) -> bool | None:
    """Tell whether the newest toolkit that a library belongs to can make code for a GPU.

    Returns:
        None where the facts do not have the toolkit.
    """
    key = ("toolkit", device)
    if key not in package.memory:
        toolkit = facts.toolkits.get(show(package.toolkits[-1]))
        code = [Arch("sass", capability) for capability in toolkit.sass] if toolkit else ()
        package.memory[key] = bool(how_it_runs(code, device, facts)) if toolkit else None
    found: bool | None = package.memory[key]
    return found
