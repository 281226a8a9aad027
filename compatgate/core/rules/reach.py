"""How far a pool reaches beyond what is known of it."""

from __future__ import annotations

from compatgate.core.case import Case
from compatgate.core.facts import Source


def may_reach_further(case: Case) -> str:
    """Why the pool may understand a newer CUDA than is known; empty: it does not."""
    if case.forward and case.forward_may_help:
        return f"whether cuda-compat is usable here is not known ({case.forward.reason})"
    if not case.driver_cuda_is_exact:
        return f"the CUDA version of driver {case.driver} is not published"
    return ""


def weakest_source(case: Case, published: Source) -> Source:
    """Return the source of what a driver's answer to PTX rests on: a derived one, where it does.

    Args:
        case: whose code and driver are compared.
        published: the vendor's statement that is applied to them.
    """
    builds = [found.build for found in case.built] if case.stack.arch is None else []
    codes = (build.arch_source for build in builds if build and build.sass)
    branch = case.facts.driver_branches.branches.get(case.driver.major) if case.driver else None
    told = (*codes, branch.source if branch else None)
    return next((one for one in told if one and one.confidence == "derived"), published)
