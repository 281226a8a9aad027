"""CG210 and CG211: check a GPU against what the workload needs, number formats and memory.

The stack states its needs, or the matrix entry that decides states them for it.
"""

from __future__ import annotations

from compatgate.core import gpu_changes
from compatgate.core.facts.nvidia import Gpu
from compatgate.core.gpu_needs import Unmet, find_unmet
from compatgate.core.needs import Needs
from compatgate.core.rule import (
    NOT_APPLICABLE,
    PASS,
    Problem,
    RuleAnswer,
    rule,
)
from compatgate.core.rule_context import RuleContext


@rule("CG210", "precision")
def precision(context: RuleContext) -> RuleAnswer:
    """The GPU does not compute in a number format that the workload needs.

    FP8 came with capability 8.9, FP4 and block scales with 10.0, BF16 and TF32 with 8.0; INT4 ends
    with 8.9. The question is about the hardware. Weights that are only stored in a narrow format
    load on older GPUs and are computed in a wider one: state no need for that. A library may still
    refuse what the hardware has.

    Example: ``needs=fp8`` on an A100 (8.0) fails.

    Fix: a GPU that computes in the format: of another pool of the target, or another product.

    Source: NVIDIA CUDA Programming Guide, "Compute Capabilities"; what ptxas refuses for each
    target.
    """
    needs = context.needs
    if needs is None or not needs.precision:
        return NOT_APPLICABLE
    return _judge(context, Needs(precision=needs.precision))


@rule("CG211", "memory")
def memory(context: RuleContext) -> RuleAnswer:
    """The GPU, or MIG slice, has less memory than the workload needs.

    The need is that of one GPU, or of one slice: ``60GiB`` is 60 * 2**30 bytes, ``80GB`` is 80 *
    10**9. A product sold as 80 GB has at least the latter and at most 80 GiB, as ECC and the driver
    keep some. A slice has at most the GiB in its name, and 7/8 of them at least. A need between the
    bounds is unknown: measure it.

    Example: ``needs=60GiB`` on an A100 with 40 GB fails, and so it does on a slice 1g.10gb.

    Fix: a GPU with more memory: of another pool of the target, or another product.

    Source: the vendors' sizes (``gpus.yaml``); NVIDIA MIG User Guide, "Supported MIG Profiles".
    """
    needs = context.needs
    if needs is None or needs.memory is None:
        return NOT_APPLICABLE
    return _judge(context, Needs(memory=needs.memory))


def _judge(context: RuleContext, needs: Needs) -> RuleAnswer:
    gpu = context.pool.gpu
    if gpu is None:
        wanted = ", ".join(needs.precision) or (needs.memory.text if needs.memory else "")
        message = f"the workload needs {wanted}, and which GPU runs it is not stated"
        return [Problem("unknown", "gpu", message, need=wanted)]
    return [_report(context, one) for one in find_unmet(needs, gpu, context.facts)] or PASS


def _report(context: RuleContext, unmet: Unmet) -> Problem:
    def fits(gpu: Gpu) -> bool:
        return not find_unmet(context.needs or Needs(), gpu, context.facts)

    return Problem(
        "fail" if unmet.certain else "unknown",
        "gpu",
        unmet.message,
        have=unmet.have,
        need=unmet.need,
        source=unmet.source,
        candidates=lambda: gpu_changes.other_gpu(context, fits),
    )
