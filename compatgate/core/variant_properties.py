"""List the variant properties of NVIDIA GPUs that suit every pool, for variant wheels.

A variant wheel names what it needs: ``nvidia :: cuda_version_lower_bound :: 12.8``. An installer
asks a provider which properties the machine supports, and takes the best wheel that they allow.
Names, order and range of the values are those of NVIDIA's provider and of the one that uv has built
in. Source: PEP 825, PEP 850 and nvidia-variant-provider, ``plugin.py``; uv,
crates/uv-distribution/src/variant/nvidia.rs.

The properties here are those on which all pools agree. NVIDIA's provider knows one driver and one
GPU; `find_forced_arch` returns the capability with which it answers as all pools would.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from compatgate.core.facts.nvidia import CudaArch, Pair
from compatgate.core.gpu_code import Arch
from compatgate.core.gpu_runs import find_run_mode

NAMESPACE = "nvidia"
LOWER_BOUND, UPPER_BOUND, SM_ARCH = (
    "cuda_version_lower_bound",
    "cuda_version_upper_bound",
    "sm_arch",
)
MULTI_VALUED = frozenset({SM_ARCH})
"""Features of which a wheel may name several values, any of which is enough."""
_MAJORS = range(11, 16)
_MINORS = range(21)
_LEAST_CAPABILITY = (5, 0)


class VariantProperties(Struct, frozen=True):
    """The values of each feature that suit every pool, best first.

    Attributes:
        features: name to values; a feature of which nothing is known is absent.
        missing: why a feature is absent, one sentence each.
    """

    features: dict[str, tuple[str, ...]] = {}
    missing: tuple[str, ...] = ()

    def to_json(self) -> dict[str, dict[str, list[str]]]:
        """Return namespace to feature to values, as variant metadata lists them."""
        return {NAMESPACE: {name: list(values) for name, values in self.features.items()}}


def list_properties(
    cudas: Sequence[Pair], capabilities: Sequence[Pair], facts: CudaArch
) -> VariantProperties:
    """Return the properties that suit every pool.

    Args:
        cudas: CUDA that the driver of each pool reports; empty: of one of them it is not known.
        capabilities: compute capability of each pool; empty: of one of them it is not known.
        facts: which code runs on which GPU.
    """
    found = {}
    missing = []
    if cudas:
        found[LOWER_BOUND] = tuple(_list_at_most(min(cudas)))
        found[UPPER_BOUND] = tuple(_list_above(max(cudas)))
    else:
        missing.append(f"no {LOWER_BOUND}: the CUDA of a driver is not known")
    values = tuple(_list_code(capabilities, facts)) if capabilities else ()
    if values:
        found[SM_ARCH] = values
    elif capabilities:
        missing.append(f"no {SM_ARCH}: no code runs on all of {_name_all(capabilities)}")
    else:
        missing.append(f"no {SM_ARCH}: the GPU of a pool is not stated")
    return VariantProperties(found, tuple(missing))


def list_all() -> VariantProperties:
    """Return every value that a wheel may name."""
    versions = tuple(_list_at_most((_MAJORS[-1], _MINORS[-1])))
    pairs = [(major, minor) for major in range(12, 4, -1) for minor in range(9, -1, -1)]
    code = (f"{_number(pair)}_{kind}" for kind in ("real", "virtual") for pair in pairs)
    return VariantProperties(
        {LOWER_BOUND: versions, UPPER_BOUND: versions, SM_ARCH: tuple(dict.fromkeys(code))}
    )


def find_forced_arch(capabilities: Sequence[Pair], facts: CudaArch) -> Pair | None:
    """Return the capability for which NVIDIA's provider lists only code that runs on every pool.

    It lists code of Tegra parts for other GPUs (``87_real`` for 8.9), too; wheels for these do not
    have such code alone.

    Returns:
        None: there is none, such as for GPUs of different majors.
    """
    lowest = min(capabilities)
    for value in _candidates(lowest):
        if _read(value).capability in facts.tegra and lowest not in facts.tegra:
            continue
        if not _runs_on_all(value, capabilities, facts):
            return None
    return lowest if lowest >= _LEAST_CAPABILITY else None


def _list_at_most(cuda: Pair) -> Iterator[str]:
    """Yield versions up to one, newest first; a major after its minors."""
    for major in range(cuda[0], _MAJORS[0] - 1, -1):
        last = cuda[1] if major == cuda[0] else _MINORS[-1]
        yield from (f"{major}.{minor}" for minor in range(last, -1, -1))
        yield str(major)


def _list_above(cuda: Pair) -> Iterator[str]:
    """Yield versions after one, newest first."""
    for major in range(_MAJORS[-1], cuda[0], -1):
        yield from (f"{major}.{minor}" for minor in reversed(_MINORS))
        yield str(major)
    yield from (f"{cuda[0]}.{minor}" for minor in range(_MINORS[-1], cuda[1], -1))


def _list_code(capabilities: Sequence[Pair], facts: CudaArch) -> Iterator[str]:
    """Yield machine code, newest first, then PTX that runs on every pool."""
    named = dict.fromkeys(
        value for capability in sorted(capabilities) for value in _candidates(capability)
    )
    for kind in ("real", "virtual"):
        of_kind = (value for value in named if value.endswith(kind))
        yield from (one for one in of_kind if _runs_on_all(one, capabilities, facts))


def _candidates(capability: Pair) -> list[str]:
    """Return what NVIDIA's provider lists for a GPU."""
    major, minor = capability
    real = [f"{_number((major, lower))}_real" for lower in range(minor, -1, -1)]
    return [*real, f"{_number((major, 0))}_virtual"]


def _runs_on_all(value: str, capabilities: Iterable[Pair], facts: CudaArch) -> bool:
    code = _read(value)
    return all(find_run_mode([code], capability, facts) for capability in capabilities)


def _read(value: str) -> Arch:
    """Read ``80_real``."""
    number, _, kind = value.partition("_")
    return Arch("sass" if kind == "real" else "ptx", (int(number[:-1]), int(number[-1])))


def _number(capability: Pair) -> str:
    return f"{capability[0]}{capability[1]}"


def _name_all(capabilities: Iterable[Pair]) -> str:
    return ", ".join(f"{major}.{minor}" for major, minor in sorted(set(capabilities)))
