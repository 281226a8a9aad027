"""Decode NVIDIA's tables: toolkits, drivers, GPUs, vGPUs and Xid codes."""

from __future__ import annotations

from calendar import monthrange
from typing import Any

from compatgate.catalog.build.decode import Decoder, Shape
from compatgate.catalog.build.values import Record, pairs, record_source, source
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
    VgpuType,
    WindowsBranch,
)
from compatgate.core.facts.vgpu import Vgpu, VgpuRelease, VgpuTypes
from compatgate.core.facts.xid import (
    DriverVariant,
    Notice,
    NvlinkCase,
    NvlinkUnit,
    Recovery,
    SXid,
    Xid,
    XidTable,
)
from compatgate.core.gpus import normalise
from compatgate.core.vgpus import compact

TABLES: dict[str, type] = {
    "cuda_driver": CudaDriver,
    "driver_branches": DriverBranches,
    "forward_compat": ForwardCompat,
    "gpus": Gpus,
    "cuda_arch_support": CudaArch,
    "xid": XidTable,
    "gpu_peaks": Peaks,
    "vgpu": Vgpu,
    "vgpu_types": VgpuTypes,
}


def _cuda_driver(document: Record) -> Record:
    """Leave out majors without minor-version compatibility; part the special cases."""
    floors = [rule for rule in document["minor_version_compat"] if rule.get("linux_min")]
    special = document["special_cases"]
    return {
        "minor_compat": floors,
        "first_compatible_major": min(rule["major"] for rule in floors),
        "same_row": {c["cuda"]: c["same_row_as"] for c in special if c.get("same_row_as")},
        "never_released": {c["cuda"]: _case_source(c) for c in special if c.get("never_released")},
    }


def _case_source(case: Record) -> Source:
    own = record_source(case)
    return Source(case["fact"], own.url, own.confidence, (Reference(own.title, own.url),))


def _toolkit(row: Record) -> Record:
    names = {system: f"{system}_toolkit_driver_min" for system in ("linux", "windows")}
    return {"driver": {system: row[name] for system, name in names.items()}}


def _minor_compat(row: Record) -> Record:
    linux = row.get("linux_min_first_public_driver") or row["linux_min"]
    return {
        "minimum": {"linux": linux, "windows": row.get("windows_min")},
        "exceptions": {
            one["cuda"]: {
                "linux": one.get("linux_min"),
                "linux-aarch64": one.get("linux_aarch64_min"),
                "windows": one.get("windows_min"),
            }
            for one in row.get("exceptions", ())
        },
    }


def _branch(row: Record) -> Record:
    """Take the earliest date of all editions: operators plan for the sooner one."""
    others = row.get("eol_conflict", ())
    dates = [date for date in (row["eol"], *(one["eol"] for one in others)) if date]
    conflict = "; ".join(f"{one['edition']}: {one['eol']}" for one in others)
    notes = (
        f"published dates differ ({conflict})" if conflict else "",
        row.get("eol_status"),
        row.get("note"),
    )
    return {
        "eol": min(map(last_day, dates), default=None),
        "ended": bool(row.get("ended")),
        "note": "; ".join(filter(None, notes)),
    }


def last_day(date: str) -> str:
    """Return the last day of a month: ``2026-02`` is 2026-02-28; a full date stays."""
    if len(date) > len("2026-02"):
        return date
    year, month = (int(part) for part in date.split("-"))
    return f"{date}-{monthrange(year, month)[1]:02d}"


def _forward_compat(document: Record) -> Record:
    rules = {rule["rule"]: rule for rule in document["rules"]}
    hardware = rules["hardware"]
    return {
        "segments": hardware["segments"],
        "conditional_segments": hardware["conditional_segments"],
        "hardware": record_source(hardware),
        "brands": rules["brand gate"]["requirement_strings"],
    }


def _compat_package(row: Record) -> Record:
    libcuda = str(row["libcuda_from_driver"])
    return {
        "driver": None if libcuda.endswith(".x") else libcuda,
        "driver_branch": int(libcuda.partition(".")[0]),
        "branches": sorted(row["host_driver_branches"]),
        "disputed": _disputed_branches(row),
    }


def _disputed_branches(row: Record) -> dict[int, Source]:
    """Return branches that one source names and another denies or omits."""
    found = {
        int(branch): source(other["source"], confidence="derived")
        for other in row.get("also_seen") or ()
        for branch in other["branches"]
    }
    for dispute in row.get("disputed") or ():
        one, other = source(dispute["for"]), source(dispute["against"])
        against = Reference(f"against: {other.title}", other.url)
        also = (*one.also, against, *other.also)
        found[int(dispute["branch"])] = Source(f"for: {one.title}", one.url, one.confidence, also)
    return dict(sorted(found.items()))


def _cuda_arch(document: Record) -> Record:
    rules = {rule["rule"]: rule for rule in document["rules"]}
    return {
        "tegra": document["tegra"]["capabilities"],
        "families": tuple(sorted(pairs(one["capabilities"]) for one in document["families"])),
        "binary": record_source(rules["SASS"]),
        "ptx": record_source(rules["PTX"]),
    }


def _gpus(document: Record) -> Record:
    """Give each product the brands of its segment, and list the spellings of all."""
    segments, rows = document["brand_facts"]["by_segment"], document["gpus"]
    brands = {name: one.get("requirement_strings") for name, one in segments.items()}
    spelled = {normalise(alias): row["name"] for row in rows for alias in row.get("aliases", ())}
    return {
        "gpus": [{**r, "brands": r.get("brands") or brands.get(r["segment"])} for r in rows],
        "aliases": spelled | {normalise(row["name"]): row["name"] for row in rows},
    }


def _gpu(row: Record) -> Record:
    """Read the memory; a figure that was not read in a source is derived."""
    if known := row.get("memory_range_gb"):
        memory = Memory(float(known["least"]), float(known["most"]), record_source(known))
        return {"memory": memory}
    if row["memory_gb"] is None:
        return {"memory": None}
    stated = Source("the vendor's figure as commonly known", None, "derived")
    if one := row.get("memory_source"):
        stated = source(one, confidence="metadata")
    elif row.get("memory_verified"):
        stated = record_source(row)
    size = float(row["memory_gb"])
    return {"memory": Memory(size, size, stated)}


def _vgpu(document: Record) -> Record:
    return {
        "branches": sorted(document["branches"], key=lambda row: row["vgpu"]),
        "releases": sorted(document["releases"], key=lambda row: _release_key(row["release"])),
        "rules": {row["rule"]: record_source(row) for row in document["rules"]},
    }


def _release_key(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def _vgpu_release(row: Record) -> Record:
    also = [one["guest_linux"] for one in row.get("also_stated", ()) if "guest_linux" in one]
    return {"vgpu": _release_key(row["release"])[0], "also": also}


def _vgpu_types(document: Record) -> Record:
    spelled = (
        (compact(prefix), row)
        for row in document["types"]
        for prefix in (row["prefix"], *row.get("also_written", ()))
    )
    return {"types": dict(spelled)}


def _vgpu_type(row: Record) -> Record:
    since = {int(branch): text for branch, text in row.get("since", {}).items()}
    return {"branches": {branch: since.get(branch) for branch in row["branches"]}}


def _xids(document: Record) -> Record:
    """Give each code its severity: its own, or that of its class.

    A code without an action in the catalog is a warning: unknown does not mean harmless.
    """
    classes = {row["class"]: row["severity"] for row in document["severity_classes"]}
    severities = (
        row.get("severity") or classes.get(row["severity_class"] or "", "warning")
        for row in document["xids"]
    )
    rows = zip(document["xids"], severities, strict=True)
    return {
        "xids": [{**row, "severity": severity} for row, severity in rows],
        "advice": {row["bucket"]: row["advice"] for row in document["resolutions"]},
    }


def _unit(row: Record) -> Record:
    names = row["unit"].upper().split("/")
    return {"names": names, "v1": int(row["v1"], 2), "v2": int(row["v2"], 2)}


_ACTIONS = {"action": "nvidia_immediate_action", "investigate": "nvidia_investigatory_action"}
_PEAKS: dict[str, Any] = {
    **{kind: f"{kind}_tflops" for kind in PEAK_KINDS},
    **{name: f"{name}_gb_s" for name in ("memory", "nvlink", "pcie")},
}
DECODER = Decoder(
    {
        CudaDriver: Shape(
            {"toolkits": "releases"}, _cuda_driver, {"toolkits": "version", "minor_compat": "major"}
        ),
        Toolkit: Shape({"version": "cuda"}, _toolkit),
        MinorCompat: Shape(make=_minor_compat),
        DriverBranches: Shape(order={"branches": "branch", "windows": "first"}),
        WindowsBranch: Shape({"cuda": "nvidia_smi_cuda"}),
        Branch: Shape(
            {
                "cuda": "nvidia_smi_cuda",
                "first": "first_linux_release",
                "last": "last_linux_release_seen",
            },
            _branch,
        ),
        ForwardCompat: Shape(make=_forward_compat),
        CompatPackage: Shape({"minimums": "patch_minimums"}, _compat_package),
        CudaArch: Shape({"capabilities": "compute_capabilities"}, _cuda_arch),
        ToolkitArch: Shape({"sass": "sass_all"}),
        CapabilityFact: Shape(
            {"capability": "compute_capability", "last_branch": "last_driver_branch"}
        ),
        Gpus: Shape(make=_gpus),
        Gpu: Shape(
            {
                "capability": "compute_capability",
                "first_branch": "first_driver_branch",
                "last_branch": "last_driver_branch",
                "mig_driver": "mig_min_driver",
            },
            _gpu,
        ),
        GpuPeaks: Shape(_PEAKS),
        Vgpu: Shape(make=_vgpu),
        VgpuRelease: Shape(make=_vgpu_release),
        VgpuTypes: Shape(make=_vgpu_types),
        VgpuType: Shape({"capability": "compute_capability", "memory": "memory_gb"}, _vgpu_type),
        XidTable: Shape(
            {"notices": "messages", "recoveries": "recovery_actions", "nvlink": "nvlink5"}, _xids
        ),
        Xid: Shape(
            {
                "code": "xid",
                "unused": "unused_in_current_catalog",
                "legacy": "legacy_meaning_pre_ampere",
                "on_driver": "by_driver",
                **_ACTIONS,
            }
        ),
        DriverVariant: Shape(_ACTIONS),
        SXid: Shape({"code": "sxid", "kind": "class"}),
        Notice: Shape({"name": "message"}),
        Recovery: Shape(make=lambda row: {"names": [name.lower() for name in row["names"]]}),
        NvlinkUnit: Shape(make=_unit),
        NvlinkCase: Shape(
            make=lambda row: {"status": None if row["status"] is None else int(row["status"], 16)}
        ),
    }
)
