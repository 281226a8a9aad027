"""Build NVIDIA's tables: toolkits, drivers, GPUs and Xid codes.

``cuda_driver.yaml`` (toolkits and drivers), ``driver_branches.yaml`` (branches and their end of
life), ``forward_compat.yaml``, ``cuda_arch_support.yaml`` (toolkits and architectures),
``gpus.yaml``, ``gpu_peaks.yaml`` and ``xid.yaml``.
"""

from __future__ import annotations

from calendar import monthrange
from typing import Any

from compatgate.catalog.build.values import (
    Record,
    driver,
    drivers,
    fill,
    pair,
    pairs,
    record_source,
    sort_releases,
    source,
    version,
)
from compatgate.core.constraints import parse_constraint
from compatgate.core.facts.nvidia import (
    PEAK_KINDS,
    Branch,
    CapabilityFact,
    CompatPackage,
    CudaArch,
    CudaDriver,
    DriverBranches,
    ForwardCompat,
    Gpu,
    GpuPeaks,
    Gpus,
    Memory,
    MinorCompat,
    Peaks,
    Reference,
    Source,
    Toolkit,
    ToolkitArch,
)
from compatgate.core.facts.xid import (
    DriverVariant,
    Notice,
    NvlinkCase,
    NvlinkUnit,
    Recovery,
    RmaRule,
    Severity,
    SXid,
    Xid,
    XidTable,
)
from compatgate.core.versions import Version
from compatgate.errors import BadInput


def cuda_driver(document: Record) -> CudaDriver:
    """Build the two tables of the release notes, and the releases that neither lists."""
    floors = [_minor_compat(rule) for rule in document["minor_version_compat"] if _has_floor(rule)]
    special = document["special_cases"]
    return CudaDriver(
        toolkits=sort_releases(_toolkit(release) for release in document["releases"]),
        minor_compat={floor.major: floor for floor in sorted(floors, key=lambda f: f.major)},
        first_compatible_major=min(floor.major for floor in floors),
        same_row={str(c["cuda"]): str(c["same_row_as"]) for c in special if c.get("same_row_as")},
        never_released={
            str(c["cuda"]): _special_case_source(c) for c in special if c.get("never_released")
        },
    )


def _toolkit(release: Record) -> Toolkit:
    return Toolkit(
        version("cuda", release["cuda"]),
        drivers(
            linux=release["linux_toolkit_driver_min"],
            windows=release["windows_toolkit_driver_min"],
        ),
        record_source(release),
    )


def _has_floor(rule: Record) -> bool:
    return bool(rule.get("linux_min"))


def _minor_compat(rule: Record) -> MinorCompat:
    return MinorCompat(
        major=int(rule["major"]),
        minimum=drivers(
            linux=rule.get("linux_min_first_public_driver") or rule["linux_min"],
            windows=rule.get("windows_min"),
        ),
        source=record_source(rule),
        exceptions={str(e["cuda"]): _exception(e) for e in rule.get("exceptions", ())},
    )


def _exception(exception: Record) -> dict[str, Version]:
    return drivers(
        linux=exception.get("linux_min"),
        linux_aarch64=exception.get("linux_aarch64_min"),
        windows=exception.get("windows_min"),
    )


def _special_case_source(case: Record) -> Source:
    told = source(case["source"], confidence=case["confidence"])
    return Source(case["fact"], told.url, told.confidence, (Reference(told.title, told.url),))


def driver_branches(document: Record) -> DriverBranches:
    """Build one entry per driver branch, ascending."""
    branches = sorted((_branch(record) for record in document["branches"]), key=lambda b: b.branch)
    return DriverBranches({branch.branch: branch for branch in branches})


def _branch(record: Record) -> Branch:
    return fill(
        Branch,
        record,
        branch=int(record["branch"]),
        eol=_end_of_life(record),
        ended=bool(record.get("ended", False)),
        cuda=pair(record["nvidia_smi_cuda"]) if record["nvidia_smi_cuda"] else None,
        first=_branch_release(record["first_linux_release"]),
        last=_branch_release(record["last_linux_release_seen"]),
        note=_note(record),
    )


def _end_of_life(record: Record) -> str | None:
    """Return the earliest date of all editions: operators plan for the sooner one."""
    dates = [record["eol"], *(c["eol"] for c in record.get("eol_conflict", ()))]
    return min((last_day(date) for date in dates if date), default=None)


def last_day(date: str) -> str:
    """Return the last day of a month: ``2026-02`` is 2026-02-28; a full date stays."""
    if len(date) > len("2026-02"):
        return date
    year, month = (int(part) for part in date.split("-"))
    return f"{date}-{monthrange(year, month)[1]:02d}"


def _branch_release(text: Any) -> Version | None:
    return driver(text) if text else None


def _note(record: Record) -> str:
    conflict = [f"{c['edition']}: {c['eol']}" for c in record.get("eol_conflict", ())]
    editions = f"published dates differ ({'; '.join(conflict)})" if conflict else ""
    return "; ".join(filter(None, (editions, record.get("eol_status"), record.get("note"))))


def forward_compat(document: Record) -> ForwardCompat:
    """Build the forward-compatibility packages by CUDA series, with the hardware they support."""
    hardware = _compat_rule(document, "hardware")
    gate = _compat_rule(document, "brand gate")
    return ForwardCompat(
        packages={str(p["cuda"]): _compat_package(p) for p in document["packages"]},
        segments=tuple(hardware["segments"]),
        conditional_segments=tuple(hardware["conditional_segments"]),
        hardware=record_source(hardware),
        brands=tuple(gate["requirement_strings"]),
    )


def _compat_rule(document: Record, name: str) -> Record:
    rule: Record = next(rule for rule in document["rules"] if rule["rule"] == name)
    return rule


def _compat_package(package: Record) -> CompatPackage:
    libcuda = str(package["libcuda_from_driver"])
    return CompatPackage(
        cuda=pair(package["cuda"]),
        driver=None if libcuda.endswith(".x") else driver(libcuda),
        driver_branch=int(libcuda.split(".")[0]),
        branches=tuple(sorted(package["host_driver_branches"])),
        disputed=_disputed_branches(package),
        minimums={int(b): driver(v) for b, v in package.get("patch_minimums", {}).items()},
        source=record_source(package),
    )


def _disputed_branches(package: Record) -> dict[int, Source]:
    """Return branches that one source names and another denies or omits."""
    found: dict[int, Source] = {}
    for seen in _as_list(package.get("also_seen")):
        told = source(seen["source"], confidence="derived")
        found.update({int(branch): told for branch in seen["branches"]})
    for dispute in _as_list(package.get("disputed")):
        found[int(dispute["branch"])] = _join_sources(
            source(dispute["for"]), source(dispute["against"])
        )
    return {branch: found[branch] for branch in sorted(found)}


def _join_sources(one: Source, other: Source) -> Source:
    """Join two sources that contradict each other; the one in favour comes first."""
    against = Reference(f"against: {other.title}", other.url)
    return Source(f"for: {one.title}", one.url, one.confidence, (*one.also, against, *other.also))


def _as_list(value: Any) -> list[Record]:
    return list(value or ())


def cuda_arch(document: Record) -> CudaArch:
    """Build the targets of each toolkit, and the rules of binary and PTX compatibility."""
    rules = {rule["rule"]: rule for rule in document["rules"]}
    facts = document["compute_capabilities"]
    return CudaArch(
        toolkits={str(t["cuda"]): _toolkit_targets(t) for t in document["toolkits"]},
        capabilities={str(c["compute_capability"]): _capability_fact(c) for c in facts},
        tegra=pairs(document["tegra"]["capabilities"]),
        families=tuple(sorted(pairs(f["capabilities"]) for f in document["families"])),
        binary=record_source(rules["SASS"]),
        ptx=record_source(rules["PTX"]),
    )


def _toolkit_targets(toolkit: Record) -> ToolkitArch:
    isa = toolkit["ptx_isa"]
    return ToolkitArch(
        pair(toolkit["cuda"]),
        pairs(toolkit["sass_all"]),
        str(isa) if isa else None,
        record_source(toolkit),
    )


def _capability_fact(fact: Record) -> CapabilityFact:
    last = fact["last_toolkit"]
    return fill(
        CapabilityFact,
        fact,
        capability=pair(fact["compute_capability"]),
        first_toolkit=pair(fact["first_toolkit"]),
        last_toolkit=pair(last) if last else None,
        last_branch=fact["last_driver_branch"],
    )


def gpus(document: Record) -> Gpus:
    """Build the products by canonical name, and the index of their spellings."""
    brands = document["brand_facts"]["by_segment"]
    found = {record["name"]: _gpu(record, brands) for record in document["gpus"]}
    return Gpus(found, _aliases(document["gpus"]))


def _gpu(record: Record, brands: Record) -> Gpu:
    of_segment = brands.get(record["segment"], {}).get("requirement_strings", ())
    minimum = record.get("mig_min_driver")
    return fill(
        Gpu,
        record,
        capability=pair(record["compute_capability"]),
        brands=tuple(record.get("brands") or of_segment),
        first_branch=record["first_driver_branch"],
        last_branch=record["last_driver_branch"],
        mig_driver=driver(minimum) if minimum else None,
        memory=_memory(record),
    )


def _memory(record: Record) -> Memory | None:
    """Build the memory of a product; a figure that was not read in a source is derived."""
    if known := record.get("memory_range_gb"):
        return Memory(float(known["least"]), float(known["most"]), record_source(known))
    if record["memory_gb"] is None:
        return None
    size = float(record["memory_gb"])
    if stated := record.get("memory_source"):
        return Memory(size, size, source(stated, confidence="metadata"))
    if record.get("memory_verified"):
        return Memory(size, size, record_source(record))
    return Memory(size, size, Source("the vendor's figure as commonly known", None, "derived"))


def _aliases(records: list[Record]) -> dict[str, str]:
    from compatgate.core.gpus import normalise

    spellings = {normalise(alias): r["name"] for r in records for alias in r.get("aliases", ())}
    return spellings | {normalise(record["name"]): record["name"] for record in records}


def gpu_peaks(document: Record) -> Peaks:
    """Build the peak rates by canonical GPU name."""
    return Peaks({record["name"]: _peaks(record) for record in document["gpus"]})


def _peaks(record: Record) -> GpuPeaks:
    figures = {name: record.get(_field(name)) for name in (*PEAK_KINDS, "nvlink", "pcie")}
    known = {name: float(value) for name, value in figures.items() if value is not None}
    return GpuPeaks(record["name"], record_source(record), note=record.get("note") or "", **known)


def _field(name: str) -> str:
    return f"{name}_gb_s" if name in ("memory", "nvlink", "pcie") else f"{name}_tflops"


def xid(document: Record) -> XidTable:
    """Build the codes, each with its severity and NVIDIA's action."""
    classes: dict[str, Severity] = {
        row["class"]: row["severity"] for row in document["severity_classes"]
    }
    return XidTable(
        tuple(_xid(record, classes) for record in document["xids"]),
        tuple(fill(SXid, row, code=row["sxid"], kind=row["class"]) for row in document["sxids"]),
        tuple(fill(Notice, row, name=row["message"]) for row in document["messages"]),
        tuple(
            fill(Recovery, row, names=tuple(name.lower() for name in row["names"]))
            for row in document["recovery_actions"]
        ),
        tuple(_unit(record) for record in document["nvlink5"]),
        {row["bucket"]: row["advice"] for row in document["resolutions"]},
        tuple(fill(RmaRule, row) for row in document.get("rma") or ()),
    )


def _xid(record: Record, classes: dict[str, Severity]) -> Xid:
    # A code without an action in the catalog is a warning: unknown does not mean harmless.
    severity = record.get("severity") or classes.get(record["severity_class"] or "", "warning")
    return fill(
        Xid,
        record,
        code=record["xid"],
        unused=record["unused_in_current_catalog"],
        severity=severity,
        action=record["nvidia_immediate_action"],
        investigate=record["nvidia_investigatory_action"],
        legacy=record.get("legacy_meaning_pre_ampere"),
        on_driver=tuple(_driver_row(record["xid"], row) for row in record.get("by_driver") or ()),
    )


def _driver_row(code: int, row: Record) -> DriverVariant:
    try:
        driver = parse_constraint("driver", row["driver"])
    except BadInput as error:
        raise error.at(f"xids[xid={code}].by_driver") from error
    return fill(
        DriverVariant,
        row,
        driver=driver,
        action=row.get("nvidia_immediate_action"),
        investigate=row.get("nvidia_investigatory_action"),
    )


def _unit(record: Record) -> NvlinkUnit:
    return NvlinkUnit(
        record["xid"],
        tuple(name.upper() for name in record["unit"].split("/")),
        int(record["v1"], 2),
        int(record["v2"], 2),
        tuple(
            NvlinkCase(
                row["reason"],
                None if row["status"] is None else int(row["status"], 16),
                row["severity"],
                row["action"],
                row["investigate"],
                row.get("promoted"),
            )
            for row in record["cases"]
        ),
    )
