"""Build the tables of a node's parts: kernel modules, fabric, tools, kernels, glibc."""

from __future__ import annotations

from typing import Any

from compatgate.catalog.build.values import Record, driver, pair, pairs, record_source, version
from compatgate.core.facts.glibc import Glibc, GlibcNeed
from compatgate.core.facts.node import (
    BuildFailure,
    DcgmDriver,
    Defect,
    Distributions,
    FabricPair,
    FabricRule,
    FabricSystem,
    FlavourBranch,
    FlavourRow,
    KernelModules,
    KernelSupport,
    NamedKernel,
    Need,
    NodeParts,
    OfedPair,
    OperatorRelease,
    OperatorSeries,
    RdmaPath,
    Statement,
    ValidatedKernel,
    VersionRange,
    When,
)
from compatgate.core.matrix import parse_constraint
from compatgate.core.node import parse_node_version
from compatgate.core.versions import Version


def kernel_modules(document: Record) -> KernelModules:
    """Build the table of flavours."""
    return KernelModules(
        architectures=tuple(_flavours(row) for row in document["architectures"]),
        branches=tuple(
            FlavourBranch(
                first=row["first"],
                last=row["last"],
                open=row["open"],
                proprietary=row["proprietary"],
                default=row["default"],
                source=record_source(row),
                note=row.get("note") or "",
            )
            for row in document["branches"]
        ),
        statements=_statements(document),
    )


def _flavours(row: Record) -> FlavourRow:
    return FlavourRow(
        architecture=row["architecture"],
        capabilities=pairs(row["capabilities"]),
        open=row["open"],
        proprietary=row["proprietary"],
        gsp=row["gsp"],
        first_branch_open=row["first_branch_open"],
        last_branch=row["last_branch"],
        source=record_source(row),
        gpus=tuple(row.get("gpus", ())),
    )


def node_components(document: Record) -> NodeParts:
    """Build the table of parts of a node."""
    rules = (
        FabricRule(row["component"], row["equal"], row["fact"], record_source(row))
        for row in document["fabric_rules"]
    )
    series = (_series(row) for row in document["gpu_operator_series"])
    return NodeParts(
        fabric_rules={one.component: one for one in rules},
        fabric_systems=tuple(_fabric_system(row) for row in document["fabric_systems"]),
        fabric_pairs=tuple(
            FabricPair(driver(row["driver"]), driver(row["fabric_manager"]), record_source(row))
            for row in document["fabric_pairs"]
        ),
        needs=tuple(_need(row) for row in document["needs"]),
        defects=tuple(_defect(row) for row in document["defects"]),
        toolkit_releases=_releases(document["container_toolkit"]),
        dcgm_releases=_releases(document["dcgm"]),
        dcgm_drivers=tuple(_dcgm_driver(row) for row in document["dcgm_drivers"]),
        operators=tuple(_operator(row) for row in document["gpu_operator"]),
        series={f"{one.series[0]}.{one.series[1]}": one for one in series},
        statements=_statements(document),
    )


def _releases(rows: list[Record]) -> tuple[Version, ...]:
    found = (parse_node_version(row["version"]) for row in rows)
    return tuple(sorted(found, key=lambda one: one.key))


def _fabric_system(row: Record) -> FabricSystem:
    least = row.get("minimum_driver")
    return FabricSystem(
        system=row["system"],
        gpus=tuple(row.get("gpus", ())),
        fabric_manager=row["fabric_manager"],
        nvlsm=row["nvlsm"],
        imex=row["imex"],
        minimum_driver=driver(least) if least else None,
        source=record_source(row),
    )


def _need(row: Record) -> Need:
    return Need(
        id=row["id"],
        component=row["component"],
        needs=parse_node_version(row["needs"]),
        when=_when(row["when"]),
        outcome=row["outcome"],
        fact=row["fact"],
        source=record_source(row),
    )


def _defect(row: Record) -> Defect:
    return Defect(
        id=row["id"],
        component=row["component"],
        versions=_range(row, is_driver=row["component"] == "driver"),
        when=_when(row.get("when", {})),
        outcome=row["outcome"],
        problem=row["problem"],
        fixed=parse_node_version(row["fixed"]) if row["fixed"] else None,
        source=record_source(row),
        cve=row.get("cve"),
        where=row.get("where", ""),
    )


def _when(row: Record) -> When:
    least = row.get("driver_from")
    return When(
        gpus=tuple(row.get("gpus", ())),
        capabilities=pairs(row.get("capabilities")),
        mig=row.get("mig", False),
        driver_from=driver(least) if least else None,
        node={name: tuple(values) for name, values in row.get("node", {}).items()},
    )


def _range(row: Record, *, is_driver: bool = False) -> VersionRange:
    read = driver if is_driver else parse_node_version
    return VersionRange(
        first=read(row["first"]) if "first" in row else None,
        below=read(row["below"]) if "below" in row else None,
        only=tuple(read(text) for text in row.get("only", ())),
    )


def _dcgm_driver(row: Record) -> DcgmDriver:
    other = row.get("driver_nvswitch")
    return DcgmDriver(
        versions=_range(row),
        driver=driver(row["driver"]),
        driver_nvswitch=driver(other) if other else None,
        source=record_source(row),
    )


def _operator(row: Record) -> OperatorRelease:
    return OperatorRelease(
        version=parse_node_version(row["version"]),
        driver_default=driver(row["driver_default"]),
        container_toolkit=parse_node_version(row["container_toolkit"]),
        dcgm=parse_node_version(row["dcgm"]),
        source=record_source(row),
    )


def _series(row: Record) -> OperatorSeries:
    return OperatorSeries(
        series=pair(row["series"]),
        status=row["status"],
        drivers=tuple(driver(text) for text in row["drivers"]),
        recommended=tuple(driver(text) for text in row["recommended"]),
        source=record_source(row),
    )


def kernel_support(document: Record) -> KernelSupport:
    """Build the table of kernels and distributions."""
    lists = (
        Distributions(row["branch"], tuple(row["distributions"]), record_source(row))
        for row in document["distributions"]
    )
    paths = (_rdma(row) for row in document["rdma"])
    return KernelSupport(
        minimums={
            row["branch"]: (parse_node_version(row["kernel"]), record_source(row))
            for row in document["minimum_kernel"]
        },
        named=tuple(_named(row) for row in document["named_kernels"]),
        validated=tuple(_validated(row) for row in document["validated_kernels"]),
        distributions={one.branch: one for one in lists},
        failures=tuple(_failure(row) for row in document["build_failures"]),
        rdma={one.path: one for one in paths},
        ofed=tuple(
            OfedPair(row["system"], driver(row["driver"]), row["ofed"], record_source(row))
            for row in document["ofed_shipped"]
        ),
        statements=_statements(document),
    )


def _named(row: Record) -> NamedKernel:
    return NamedKernel(
        driver=driver(row["driver"]),
        kernel=parse_node_version(row["kernel"]),
        date=row["date"],
        source=record_source(row),
        beta=row.get("beta", False),
    )


def _validated(row: Record) -> ValidatedKernel:
    return ValidatedKernel(
        branch=row["branch"],
        cpu=row["cpu"],
        distribution=row["distribution"],
        kernel=parse_node_version(row["kernel"]),
        machines=row["machines"],
        source=record_source(row),
    )


def _failure(row: Record) -> BuildFailure:
    return BuildFailure(
        id=row["id"],
        drivers=_range(row["driver"], is_driver=True),
        kernels=_range(row["kernel"]),
        symptom=row["symptom"],
        fixed=driver(row["fixed"]) if row["fixed"] else None,
        source=record_source(row),
    )


def _rdma(row: Record) -> RdmaPath:
    kernel, least = row["kernel"], row["least_capability"]
    return RdmaPath(
        path=row["path"],
        needs_open=row["modules"] == "open",
        kernel=parse_node_version(kernel) if kernel else None,
        driver=driver(row["driver"]),
        least_capability=pair(least) if least else None,
        fact=row["fact"],
        source=record_source(row),
    )


def _statements(document: Record) -> dict[str, Statement]:
    rows: list[dict[str, Any]] = document["statements"]
    return {row["id"]: Statement(row["id"], row["fact"], record_source(row)) for row in rows}


def glibc(document: Record) -> Glibc:
    """Build the table of the glibc of distributions, and of what wheels need."""
    tags = document["tags"]
    return Glibc(
        distributions={
            name: (version("glibc", row["glibc"]), record_source(row))
            for row in document["distributions"]
            for name in row["names"]
        },
        tags={name: version("glibc", text) for name, text in tags["means"].items()},
        tags_source=record_source(tags),
        needs=tuple(_glibc_need(row) for row in document["needs"]),
    )


def _glibc_need(row: Record) -> GlibcNeed:
    parse_constraint(row["package"], row["versions"])  # a malformed one fails here
    return GlibcNeed(
        name=row["package"],
        versions=row["versions"],
        glibc=version("glibc", row["glibc"]),
        source=record_source(row),
        cudas=pairs(row.get("cuda")),
        cpu=row.get("cpu") or "",
    )
