"""Toolkits and architectures, from ``cuda_arch_support.yaml``."""

from __future__ import annotations

from compatgate.catalog.build.read import Record, of, pair, pairs
from compatgate.core.facts import CapabilityFact, CudaArch, ToolkitArch


def cuda_arch(document: Record) -> CudaArch:
    """What each toolkit can target, and the rules of binary and PTX compatibility."""
    rules = {rule["rule"]: rule for rule in document["rules"]}
    facts = document["compute_capabilities"]
    return CudaArch(
        toolkits={str(t["cuda"]): _toolkit(t) for t in document["toolkits"]},
        capabilities={str(c["compute_capability"]): _capability(c) for c in facts},
        tegra=pairs(document["tegra"]["capabilities"]),
        families=tuple(sorted(pairs(f["capabilities"]) for f in document["families"])),
        binary=of(rules["SASS"]),
        ptx=of(rules["PTX"]),
    )


def _toolkit(toolkit: Record) -> ToolkitArch:
    isa = toolkit["ptx_isa"]
    return ToolkitArch(
        pair(toolkit["cuda"]), pairs(toolkit["sass_all"]), str(isa) if isa else None, of(toolkit)
    )


def _capability(fact: Record) -> CapabilityFact:
    last = fact["last_toolkit"]
    return CapabilityFact(
        capability=pair(fact["compute_capability"]),
        architecture=fact["architecture"],
        first_toolkit=pair(fact["first_toolkit"]),
        last_toolkit=pair(last) if last else None,
        last_branch=fact["last_driver_branch"],
        source=of(fact),
    )
