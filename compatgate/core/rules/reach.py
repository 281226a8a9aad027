"""How far a pool reaches beyond what is known of it."""

from __future__ import annotations

from compatgate.core.case import Case


def may_reach_further(case: Case) -> str:
    """Why the pool may understand a newer CUDA than is known; empty: it does not."""
    if case.forward and case.forward_may_help:
        return f"whether cuda-compat is usable here is not known ({case.forward.reason})"
    if not case.driver_cuda_is_exact:
        return f"the CUDA version of driver {case.driver} is not published"
    return ""
