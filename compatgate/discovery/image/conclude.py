"""From what config and layers say to one stack."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from compatgate.core.arch import Arch
from compatgate.core.facts import CudaArch
from compatgate.core.gpu_code import how_it_runs
from compatgate.discovery.image.config import Stated
from compatgate.discovery.image.seen import CodeFile, Seen, Witness
from compatgate.discovery.observed import Conflict, Observation
from compatgate.discovery.settle import settle

Concluded = tuple[dict[str, Any], tuple[Observation, ...], tuple[Conflict, ...]]


def conclude(stated: Stated, seen: Seen, facts: CudaArch | None) -> Concluded:
    """The stack, every observation, and where they disagree.

    Args:
        stated: by the config.
        seen: in the layers.
        facts: where code runs; without them the code of several packages is not compared.
    """
    seen.add(Witness.CONFIG, stated.observations)
    observations = list(dict.fromkeys(seen.ranked()))
    arch, disagreement = _arch(seen.codes, facts)
    code: list[Observation] = [
        Observation("arch", "+".join(a.name for a in c.arch), c.origin, "measured")
        for c in seen.codes
    ]
    if not arch and stated.arch:
        arch = stated.arch
        code = [Observation("arch", "+".join(arch), "env TORCH_CUDA_ARCH_LIST", "derived")]
    stack, conflicts = settle(observations, arch)
    if stated.require:
        stack["require"] = list(stated.require)
    if stated.disable_require:
        stack["disable-require"] = True
    majors = _majors(stack, seen.majors)
    return (
        stack,
        tuple(dict.fromkeys([*observations, *seen.majors, *code])),
        (*conflicts, *majors, *disagreement),
    )


def _arch(
    codes: Sequence[CodeFile], facts: CudaArch | None
) -> tuple[tuple[str, ...], list[Conflict]]:
    """Code that runs wherever every package's code runs."""
    groups: dict[str, set[Arch]] = {}
    for file in codes:
        groups.setdefault(file.owner, set()).update(file.arch)
    union = sorted(
        set().union(*groups.values()), key=lambda a: (a.kind == "ptx", a.capability, a.suffix)
    )
    names = tuple(code.name for code in union)
    if facts is None or len(groups) < 2:
        return names, []
    common = tuple(c.name for c in union if all(_runs(c, g, facts) for g in groups.values()))
    if len(common) == len(union):
        return names, []
    lacking = "; ".join(
        f"{owner or 'other files'} has nothing for {' '.join(missing)}"
        for owner, group in groups.items()
        if (missing := [c.name for c in union if not _runs(c, group, facts)])
    )
    message = f"not all GPU code runs on the same GPUs: {lacking}"
    return common, [Conflict("arch", message, "+".join(common))]


def _runs(code: Arch, carried: set[Arch], facts: CudaArch) -> bool:
    """Whether other code runs on every GPU that this code was made for."""
    if code in carried:
        return True
    if code.kind == "sass":
        return how_it_runs(carried, code.capability, facts) is not None
    return any(
        c.kind == "ptx" and not c.suffix and c.capability <= code.capability for c in carried
    )


def _majors(stack: dict[str, Any], majors: Iterable[Observation]) -> list[Conflict]:
    """Libraries whose major version is not the stack's."""
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
