"""CG140 and CG141: check the ways to share a GPU, MPS and time slicing, where a pool states one."""

from __future__ import annotations

from collections.abc import Iterator

from compatgate.core.facts.vgpu import SharingFact, SharingLimit
from compatgate.core.gpu_code import parse_capability
from compatgate.core.parts import NODE, Candidate
from compatgate.core.rule import NOT_APPLICABLE, PASS, Answer, Problem, report_missing_fact, rule
from compatgate.core.rule_context import RuleContext
from compatgate.core.rules.vgpu import is_guest
from compatgate.core.versions import format_parts


@rule("CG140", "mps-support", reads=NODE, pool_only=True)
def mps_support(context: RuleContext) -> Answer:
    """The pool shares its GPUs by MPS, which does not work on them or isolates less.

    MPS runs on Linux and QNX, on GPUs from capability 3.5 on; before Volta (7.0), all clients
    share one GPU address space, and a client cannot have its own thread limit. NVIDIA's device
    plugin does not support MPS on MIG devices; outside Kubernetes, MPS on a MIG instance is
    documented. No source says whether MPS works on a vGPU.

    Example: ``os=windows,sharing=mps`` fails; a P100 with ``sharing=mps`` is a warning.

    Fix: ``sharing=time-slicing``, or ``sharing=exclusive``.

    Source: NVIDIA Multi-Process Service documentation; README of NVIDIA's device plugin.
    """
    pool = context.pool
    if pool.sharing != "mps":
        return NOT_APPLICABLE
    table = context.facts.vgpu
    problems: list[Problem] = [*_report_missing_limits(context)]
    if pool.os != "linux" and (fact := table.find_sharing("mps", "os")):
        outcome = "fail" if pool.os == "windows" else "unknown"
        problems.append(_report_sharing(fact, outcome, have=f"os={pool.os}"))
    if (capability := context.capability) is not None:
        have = format_parts(capability)
        for limit in ("least-capability", "isolating-capability"):
            fact = table.find_sharing("mps", limit)
            if fact and capability < parse_capability(fact.values[0]):
                problems.append(_report_sharing(fact, fact.effect, have, f">={fact.values[0]}"))
                break
    gpu = pool.gpu
    if gpu and gpu.mig and (fact := table.find_sharing("mps", "mig")):
        problems.append(_report_sharing(fact, fact.effect, have=gpu.sku))
    if is_guest(context) and (fact := table.find_sharing("mps", "vgpu")):
        need = "sharing=time-slicing, or sharing=exclusive"
        problems += report_missing_fact(
            "sharing", fact.text, need=need, source=fact.source, candidates=_other_sharing
        )
    return problems or PASS


def _report_missing_limits(context: RuleContext) -> Iterator[Problem]:
    pool, find = context.pool, context.facts.vgpu.find_sharing
    concerns: dict[SharingLimit, bool] = {
        "os": pool.os != "linux",
        "least-capability": pool.gpu is not None,
        "mig": pool.gpu is not None and pool.gpu.mig is not None,
        "vgpu": is_guest(context),
    }
    for limit, concerned in concerns.items():
        if concerned and find("mps", limit) is None:
            message = f"whether MPS works here is not known: its limit {limit} is not in the facts"
            need = "sharing=time-slicing, or sharing=exclusive"
            yield from report_missing_fact("sharing", message, need=need, candidates=_other_sharing)


def _report_sharing(
    fact: SharingFact, outcome: str, have: str | None, need: str | None = None
) -> Problem:
    return Problem(
        "fail" if outcome == "fail" else "warn" if outcome == "warn" else "unknown",
        "sharing",
        fact.text,
        have=have,
        need=need,
        source=fact.source,
        candidates=_other_sharing,
    )


def _other_sharing() -> Iterator[Candidate]:
    yield Candidate({"sharing": "time-slicing"}, "share the GPUs by time slicing")
    yield Candidate({"sharing": "exclusive"}, "give each container its own GPU")


@rule("CG141", "time-slicing-metrics", reads=NODE, pool_only=True)
def time_slicing_metrics(context: RuleContext) -> Answer:
    """The pool shares its GPUs by time slicing, and DCGM cannot distinguish the containers.

    With time slicing DCGM-Exporter cannot associate metrics with containers, so accounting and
    alerts for each container do not work. Time slicing also gives no memory or fault isolation: a
    container that uses all memory stops the others.

    Example: a pool with ``sharing=time-slicing`` that states ``node.dcgm`` is a warning.

    Fix: ``sharing=exclusive``, or MIG if the GPU supports it.

    Source: NVIDIA GPU Operator documentation, "Time-Slicing GPUs in Kubernetes", limitations.
    """
    pool = context.pool
    if pool.sharing != "time-slicing" or "dcgm" not in pool.node:
        return NOT_APPLICABLE
    fact = context.facts.vgpu.find_sharing("time-slicing", "dcgm")
    if fact is None:
        return NOT_APPLICABLE
    exclusive = Candidate({"sharing": "exclusive"}, "give each container its own GPU")
    have, source = f"dcgm {pool.node['dcgm']}", fact.source
    return Problem(
        fact.effect, "sharing", fact.text, have, source=source, candidates=lambda: (exclusive,)
    )
