"""Build the tables of a node's parts: kernel modules, fabric, tools, kernels, glibc."""

from __future__ import annotations

from typing import Any

from compatgate.catalog.build.values import (
    Record,
    driver,
    fill,
    pair,
    pairs,
    record_source,
    version,
)
from compatgate.core.constraints import parse_constraint
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
from compatgate.core.node import parse_node_version
from compatgate.core.versions import Version


def kernel_modules(document: Record) -> KernelModules:
    """Build the table of flavours."""
    return KernelModules(
        architectures=tuple(
            fill(FlavourRow, row, capabilities=pairs(row["capabilities"]))
            for row in document["architectures"]
        ),
        branches=tuple(fill(FlavourBranch, row) for row in document["branches"]),
        statements=_statements(document),
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
    gpus = tuple(row.get("gpus", ()))
    return fill(FabricSystem, row, gpus=gpus, minimum_driver=driver(least) if least else None)


def _need(row: Record) -> Need:
    return fill(Need, row, needs=parse_node_version(row["needs"]), when=_when(row["when"]))


def _defect(row: Record) -> Defect:
    return fill(
        Defect,
        row,
        versions=_range(row, is_driver=row["component"] == "driver"),
        when=_when(row.get("when", {})),
        fixed=parse_node_version(row["fixed"]) if row["fixed"] else None,
    )


def _when(row: Record) -> When:
    least = row.get("driver_from")
    return fill(
        When,
        row,
        capabilities=pairs(row.get("capabilities")),
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
    return fill(
        DcgmDriver,
        row,
        versions=_range(row),
        driver=driver(row["driver"]),
        driver_nvswitch=driver(other) if other else None,
    )


def _operator(row: Record) -> OperatorRelease:
    parts = ("version", "container_toolkit", "dcgm")
    versions = {name: parse_node_version(row[name]) for name in parts}
    return fill(OperatorRelease, row, driver_default=driver(row["driver_default"]), **versions)


def _series(row: Record) -> OperatorSeries:
    return fill(
        OperatorSeries,
        row,
        series=pair(row["series"]),
        drivers=tuple(map(driver, row["drivers"])),
        recommended=tuple(map(driver, row["recommended"])),
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
    kernel = parse_node_version(row["kernel"])
    return fill(NamedKernel, row, driver=driver(row["driver"]), kernel=kernel)


def _validated(row: Record) -> ValidatedKernel:
    return fill(ValidatedKernel, row, kernel=parse_node_version(row["kernel"]))


def _failure(row: Record) -> BuildFailure:
    return fill(
        BuildFailure,
        row,
        drivers=_range(row["driver"], is_driver=True),
        kernels=_range(row["kernel"]),
        fixed=driver(row["fixed"]) if row["fixed"] else None,
    )


def _rdma(row: Record) -> RdmaPath:
    kernel, least = row["kernel"], row["least_capability"]
    return fill(
        RdmaPath,
        row,
        needs_open=row["modules"] == "open",
        kernel=parse_node_version(kernel) if kernel else None,
        driver=driver(row["driver"]),
        least_capability=pair(least) if least else None,
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
    glibc, cudas = version("glibc", row["glibc"]), pairs(row.get("cuda"))
    return fill(GlibcNeed, row, name=row["package"], glibc=glibc, cudas=cudas)
