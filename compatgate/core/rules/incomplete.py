"""CG901: what is not known and would be needed to decide."""

from __future__ import annotations

from compatgate.core.case import Case
from compatgate.core.components import COMPONENTS
from compatgate.core.rules.base import PASS, Answer, Problem, rule


@rule("CG901", "incomplete")
def incomplete(case: Case) -> Answer:
    """Something that the decision needs is not known; names exactly what, and how to provide it.

    The driver, the GPU and the CUDA are always needed. CUDA is taken from a framework's version
    label (``torch=2.4.1+cu121``) when it is not stated.

    Fix: state what is missing.

    Source: the question itself.
    """
    problems = []
    if case.driver is None:
        message = "the pool's driver is not known: no rule about drivers was checked"
        problems.append(
            Problem("unknown", "driver", message, need="driver=... (nvidia-smi shows it)")
        )
    if case.pool.gpu is None:
        message = "the pool's GPU is not known: no rule about GPUs was checked"
        problems.append(Problem("unknown", "gpu", message, need="gpu=A100-SXM4-80GB, or gpu=sm_80"))
    if case.cuda is None:
        problems.append(_no_cuda(case))
    for name in case.stack.components:
        if COMPONENTS[name].kind == "framework" and case.facts.framework(name) is None:
            message = (
                f"no facts on {COMPONENTS[name].label} releases are carried: its build not checked"
            )
            problems.append(Problem("not-checked", name, message))
    return problems or PASS


def _no_cuda(case: Case) -> Problem:
    builds = [
        f"{found.name}={found.version.public}+{build.label}"
        if build.label
        else f"cuda={build.cuda_major}.x"
        for found in case.frameworks
        if found.release
        for build in found.release.builds
        if build.listed
    ]
    hint = (
        f"cuda=..., or the build: {', '.join(builds)}" if builds else "cuda=... (as in cuda=12.4)"
    )
    return Problem("unknown", "cuda", "the stack's CUDA is not known", need=hint)
