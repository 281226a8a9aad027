"""Build NVIDIA's tables from their fact files.

``cuda_driver.yaml`` (toolkits and drivers), ``driver_branches.yaml`` (branches and their end of
life), ``forward_compat.yaml``, ``cuda_arch_support.yaml`` (toolkits and architectures),
``gpus.yaml``, ``gpu_peaks.yaml``, ``cudnn.yaml`` and ``nccl.yaml``.
"""

from __future__ import annotations

from calendar import monthrange
from typing import Any

from compatgate.catalog.build.values import (
    Record,
    ascending,
    driver,
    drivers,
    of,
    pair,
    pairs,
    source,
    three_parts,
    version,
)
from compatgate.core.facts.nvidia import (
    PEAK_KINDS,
    Branch,
    CapabilityFact,
    CompatPackage,
    CudaArch,
    CudaDriver,
    Cudnn,
    CudnnBuild,
    CudnnRelease,
    CudnnRow,
    DriverBranches,
    ForwardCompat,
    Gpu,
    GpuPeaks,
    Gpus,
    MinorCompat,
    Nccl,
    NcclRelease,
    Pair,
    Peaks,
    Reference,
    Source,
    Toolkit,
    ToolkitArch,
)
from compatgate.core.versions import Version


def cuda_driver(document: Record) -> CudaDriver:
    """Build the two tables of the release notes, and the releases that neither lists."""
    floors = [_minor_compat(rule) for rule in document["minor_version_compat"] if _has_floor(rule)]
    special = document["special_cases"]
    return CudaDriver(
        toolkits=ascending(_toolkit(release) for release in document["releases"]),
        minor_compat={floor.major: floor for floor in sorted(floors, key=lambda f: f.major)},
        first_compatible_major=min(floor.major for floor in floors),
        same_row={str(c["cuda"]): str(c["same_row_as"]) for c in special if c.get("same_row_as")},
        never_released={str(c["cuda"]): _why(c) for c in special if c.get("never_released")},
    )


def _toolkit(release: Record) -> Toolkit:
    return Toolkit(
        version("cuda", release["cuda"]),
        drivers(
            linux=release["linux_toolkit_driver_min"],
            windows=release["windows_toolkit_driver_min"],
        ),
        of(release),
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
        source=of(rule),
        exceptions={str(e["cuda"]): _exception(e) for e in rule.get("exceptions", ())},
    )


def _exception(exception: Record) -> dict[str, Version]:
    return drivers(
        linux=exception.get("linux_min"),
        linux_aarch64=exception.get("linux_aarch64_min"),
        windows=exception.get("windows_min"),
    )


def _why(case: Record) -> Source:
    told = source(case["source"], confidence=case["confidence"])
    return Source(case["fact"], told.url, told.confidence, (Reference(told.title, told.url),))


def driver_branches(document: Record) -> DriverBranches:
    """Build one entry per driver branch, ascending."""
    branches = sorted((_branch(record) for record in document["branches"]), key=lambda b: b.branch)
    return DriverBranches({branch.branch: branch for branch in branches})


def _branch(record: Record) -> Branch:
    return Branch(
        branch=int(record["branch"]),
        type=record["type"],
        eol=_end_of_life(record),
        ended=bool(record.get("ended", False)),
        cuda=pair(record["nvidia_smi_cuda"]) if record["nvidia_smi_cuda"] else None,
        first=_branch_release(record["first_linux_release"]),
        last=_branch_release(record["last_linux_release_seen"]),
        source=of(record),
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
        hardware=of(hardware),
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
        disputed=_disputed(package),
        minimums={int(b): driver(v) for b, v in package.get("patch_minimums", {}).items()},
        source=of(package),
    )


def _disputed(package: Record) -> dict[int, Source]:
    """Return branches that one source names and another denies or omits."""
    found: dict[int, Source] = {}
    for seen in _each(package.get("also_seen")):
        told = source(seen["source"], confidence="derived")
        found.update({int(branch): told for branch in seen["branches"]})
    for dispute in _each(package.get("disputed")):
        found[int(dispute["branch"])] = _both(source(dispute["for"]), source(dispute["against"]))
    return {branch: found[branch] for branch in sorted(found)}


def _both(one: Source, other: Source) -> Source:
    """Join two sources that contradict each other; the one in favour comes first."""
    against = Reference(f"against: {other.title}", other.url)
    return Source(f"for: {one.title}", one.url, one.confidence, (*one.also, against, *other.also))


def _each(value: Any) -> list[Record]:
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
        binary=of(rules["SASS"]),
        ptx=of(rules["PTX"]),
    )


def _toolkit_targets(toolkit: Record) -> ToolkitArch:
    isa = toolkit["ptx_isa"]
    return ToolkitArch(
        pair(toolkit["cuda"]), pairs(toolkit["sass_all"]), str(isa) if isa else None, of(toolkit)
    )


def _capability_fact(fact: Record) -> CapabilityFact:
    last = fact["last_toolkit"]
    return CapabilityFact(
        capability=pair(fact["compute_capability"]),
        architecture=fact["architecture"],
        first_toolkit=pair(fact["first_toolkit"]),
        last_toolkit=pair(last) if last else None,
        last_branch=fact["last_driver_branch"],
        source=of(fact),
    )


def gpus(document: Record) -> Gpus:
    """Build the products by canonical name, and the index of their spellings."""
    brands = document["brand_facts"]["by_segment"]
    found = {record["name"]: _gpu(record, brands) for record in document["gpus"]}
    return Gpus(found, _aliases(document["gpus"]))


def _gpu(record: Record, brands: Record) -> Gpu:
    segment = record["segment"]
    stated = record.get("brands") or brands.get(segment, {}).get("requirement_strings", ())
    minimum = record.get("mig_min_driver")
    return Gpu(
        name=record["name"],
        capability=pair(record["compute_capability"]),
        architecture=record["architecture"],
        segment=segment,
        cpu=record.get("cpu"),
        brands=tuple(stated),
        memory_gb=record["memory_gb"],
        first_branch=record["first_driver_branch"],
        last_branch=record["last_driver_branch"],
        mig_capable=record["mig_capable"],
        mig_driver=driver(minimum) if minimum else None,
        source=of(record),
    )


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
    return GpuPeaks(record["name"], of(record), note=record.get("note") or "", **known)


def _field(name: str) -> str:
    return f"{name}_gb_s" if name in ("memory", "nvlink", "pcie") else f"{name}_tflops"


def cudnn(document: Record) -> Cudnn:
    """Build each cuDNN release with its builds per CUDA major."""
    forward = document["rules"]["hardware_forward_compat"]
    return Cudnn(
        releases=ascending(_cudnn_release(record) for record in document["releases"]),
        forward_compatible_from=version("cudnn", forward["from"]),
        forward_source=of(forward),
    )


def _cudnn_release(record: Record) -> CudnnRelease:
    builds = {
        int(major): _cudnn_build(record, int(major)) for major in sorted(record["cuda_majors"])
    }
    return CudnnRelease(three_parts("cudnn", record["version"]), builds, of(record))


def _cudnn_build(record: Record, major: int) -> CudnnBuild:
    matrix = [r for r in record["support_matrix"] or () if r["package_cuda_major"] == major]
    rows = tuple(_cudnn_row(row) for row in matrix) or _floor(record, major)
    return CudnnBuild(
        minimum_capability=_minimum(record["min_cc"], major),
        rows=rows,
        source=of(record) if matrix else _derived(record, major),
        capability_source=_capability_source(record),
    )


def _cudnn_row(row: Record) -> CudnnRow:
    return CudnnRow(
        drivers(linux=row["min_driver_linux"], windows=row["min_driver_windows"]),
        pairs(row["compute_capabilities"]),
        pairs(row["cuda_toolkits"]),
    )


def _floor(record: Record, major: int) -> tuple[CudnnRow, ...]:
    """Return a row with the driver floor of the CUDA major, for releases without a matrix."""
    floor = (record["min_driver_linux_by_cuda_major"] or {}).get(str(major))
    return (CudnnRow(drivers(linux=floor["value"]), (), ()),) if floor else ()


def _derived(record: Record, major: int) -> Source:
    floor = (record["min_driver_linux_by_cuda_major"] or {}).get(str(major))
    if not floor:
        return of(record)
    return source(
        f"driver floor of CUDA {major} in the support matrices of neighbouring releases, as none of"
        f" cuDNN {record['version']} was found",
        confidence=floor["confidence"],
    )


def _minimum(stated: Any, major: int) -> Pair | None:
    text = stated.get(str(major)) if isinstance(stated, dict) else stated
    return pair(text) if text else None


def _capability_source(record: Record) -> Source | None:
    if not record["min_cc"]:
        return None
    return source(record["min_cc_source"], confidence=record["min_cc_confidence"])


def nccl(document: Record) -> Nccl:
    """Build each NCCL release with the CUDA majors that it was published for."""
    releases = ascending(_nccl_release(record) for record in document["releases"])
    first = next(release.version for release in releases if 13 in release.cuda)
    return Nccl(releases, first_cuda13=first)


def _nccl_release(record: Record) -> NcclRelease:
    packages = {pair(text)[0] for text in record["deb_rpm_cuda_suffixes_seen"] or ()}
    majors = tuple(sorted({*record["cuda_majors_of_wheels"], *packages}))
    return NcclRelease(
        version("nccl", record["version"]), majors, _nccl_capabilities(record, majors), of(record)
    )


def _nccl_capabilities(record: Record, majors: tuple[int, ...]) -> dict[int, Pair]:
    """Return the minimum capability per CUDA major.

    Wheels have the file's own conclusion, packages the lowest default target.
    """
    stated = record["min_cc_derived"] or {}
    found = {int(name.removeprefix("cu")): pair(text) for name, text in stated.items()}
    for cuda, generated in (record["default_gencode_by_build_cuda"] or {}).items():
        major = pair(cuda)[0]
        if generated and major in majors:
            found.setdefault(major, pairs(generated["sass"])[0])
    return dict(sorted(found.items()))
