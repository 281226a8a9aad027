"""Decode the tables of nodes: modules, fabric, tools, kernels, glibc, platforms and Jetson."""

from __future__ import annotations

from compatgate.catalog.build.decode import Decoder, Shape
from compatgate.catalog.build.values import Record, record_source
from compatgate.core.constraints import parse_constraint
from compatgate.core.facts.compilers import Glibc, GlibcNeed
from compatgate.core.facts.jetson import Jetson, JetsonRelease, Runs, Sbsa, Upgrade, Wheels
from compatgate.core.facts.node import (
    BuildFailure,
    DcgmDriver,
    Defect,
    Distributions,
    KernelCeiling,
    KernelModules,
    KernelSupport,
    NodeParts,
    RdmaPath,
)
from compatgate.core.facts.platforms import PlatformMachines, Platforms
from compatgate.core.node import parse_node_version
from compatgate.core.versions import parse_version

TABLES: dict[str, type] = {
    "kernel_modules": KernelModules,
    "node_components": NodeParts,
    "kernel_support": KernelSupport,
    "glibc": Glibc,
    "platforms": Platforms,
    "platform_machines": PlatformMachines,
    "jetson": Jetson,
}


def _node_parts(document: Record) -> Record:
    parts = {"toolkit_releases": "container_toolkit", "dcgm_releases": "dcgm"}
    releases = {
        field: tuple(sorted(parse_node_version(row["version"]) for row in document[part]))
        for field, part in parts.items()
    }
    return {**releases, "operators": document["gpu_operator"]}


def _kernel_support(document: Record) -> Record:
    kernels = document["minimum_kernel"]
    return {
        "minimums": {
            row["branch"]: (parse_node_version(row["kernel"]), record_source(row))
            for row in kernels
        }
    }


def _glibc(document: Record) -> Record:
    return {
        "distributions": {
            name: (parse_version("glibc", row["glibc"]), record_source(row))
            for row in document["distributions"]
            for name in row["names"]
        },
        "tags": document["tags"]["means"],
        "tags_source": record_source(document["tags"]),
    }


def _glibc_need(row: Record) -> Record:
    parse_constraint(row["package"], row["versions"])  # a malformed one fails here
    return {}


DECODER = Decoder(
    {
        NodeParts: Shape({"series": "gpu_operator_series"}, _node_parts),
        Defect: Shape(make=lambda row: {"versions": row, "when": row.get("when") or {}}),
        DcgmDriver: Shape(make=lambda row: {"versions": row}),
        KernelSupport: Shape(
            {
                "named": "named_kernels",
                "validated": "validated_kernels",
                "failures": "build_failures",
                "ceilings": "kernel_ceilings",
                "ofed": "ofed_shipped",
            },
            _kernel_support,
        ),
        Distributions: Shape({"names": "distributions"}),
        BuildFailure: Shape({"drivers": "driver", "kernels": "kernel"}),
        KernelCeiling: Shape(
            {"last": "last_release", "kernel": "newest_kernel", "patched": "newest_kernel_patched"}
        ),
        RdmaPath: Shape(make=lambda row: {"needs_open": row["modules"] == "open"}),
        Glibc: Shape(make=_glibc),
        GlibcNeed: Shape({"name": "package", "cudas": "cuda"}, _glibc_need),
        Jetson: Shape(order={"releases": "l4t"}),
        JetsonRelease: Shape(make=lambda row: {"preview": row["stage"] == "preview"}),
        Upgrade: Shape({"series": "l4t"}),
        Runs: Shape({"series": "l4t"}),
        Sbsa: Shape({"since": "from_l4t"}),
        Wheels: Shape({"series": "l4t"}),
    }
)
