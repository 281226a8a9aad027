"""Changes of the CUDA, and of the GPU code that is built."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from compatgate.core.changes.common import MOST_TRIED, described
from compatgate.core.changes.drivers import at_least, driver_for
from compatgate.core.changes.frameworks import build_for, build_with_code, use_build
from compatgate.core.gpu_code import how_it_runs
from compatgate.core.rules.base import Candidate
from compatgate.core.versions import show

if TYPE_CHECKING:
    from compatgate.core.case import Case
    from compatgate.core.facts import Pair


def older_cuda(case: Case) -> Iterator[Candidate]:
    """The newest older toolkits, with the frameworks' builds for them."""
    if case.cuda is None:
        return
    series = sorted({t.version.major_minor for t in case.facts.cuda_driver.toolkits}, reverse=True)
    tried = 0
    for pair in series:
        if pair < case.cuda.major_minor and case.driver_cuda and pair <= case.driver_cuda:
            yield from move_to_cuda(case, pair)
            tried += 1
        if tried >= MOST_TRIED:
            return


def cuda_for_gpu(case: Case) -> Iterator[Candidate]:
    """The toolkits nearest to the stack's that can target the GPU."""
    if case.cuda is None or case.capability is None:
        return
    able = [t.cuda for t in case.facts.arch.toolkits.values() if case.capability in t.sass]
    own = case.cuda.major_minor
    newer = [pair for pair in able if pair > own]
    older = [pair for pair in reversed(able) if pair < own]
    for pair in (*older[:1], *newer[:3], *older[1:3]):
        yield from move_to_cuda(case, pair)
    for found in case.frameworks[:1]:
        yield from build_with_code(case, found)


def move_to_cuda(case: Case, pair: Pair) -> Iterator[Candidate]:
    """The stack on another CUDA: every framework on its build for it, pinned libraries with it."""
    change: dict[str, Any] = {}
    if "cuda" in case.stack.components:
        change["cuda"] = show(pair)
    for found in case.frameworks:
        build = build_for(found.release, pair)
        if build is None:
            return
        if build is not found.build:
            change.update(use_build(case, found.name, found.version.public, build))
    if case.stack.arch is not None and case.capability and _lacks_code(case):
        change["arch"] = _with_sass(case)
    driver = driver_for(case, pair)
    if change:
        yield Candidate(change, described(change))
        if driver:
            both = {**change, "driver": at_least(case, driver)}
            yield Candidate(both, described(both))


def _lacks_code(case: Case) -> bool:
    device, codes = case.capability, case.stack.arch
    return device is not None and not how_it_runs(codes or (), device, case.facts.arch)


def _with_sass(case: Case) -> list[str]:
    assert case.capability is not None  # noqa: S101 - the caller checked
    own = f"sm_{case.capability[0]}{case.capability[1]}"
    return [*dict.fromkeys([*(code.name for code in case.stack.arch or ()), own])]


def add_sass(case: Case) -> Iterator[Candidate]:
    """Build machine code for the GPU, on a newer toolkit when this one cannot."""
    if case.capability is None:
        return
    codes = _with_sass(case)
    yield Candidate({"arch": codes}, f"build it for {codes[-1]} as well")
    for change in cuda_for_gpu(case):
        both = {**change.set, "arch": codes}
        yield Candidate(both, described(both))
