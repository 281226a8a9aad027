"""Decode the tables of host compilers, number formats, error texts and nodes."""

from __future__ import annotations

import re

from compatgate.catalog.build.decode import Decoder, Shape
from compatgate.catalog.build.values import Record, record_source
from compatgate.core.constraints import parse_constraint
from compatgate.core.facts.compilers import Compilers, Glibc, GlibcNeed, Standards
from compatgate.core.facts.errors import ErrorTable, Pattern, Piece, Signature
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
from compatgate.core.facts.precision import CapabilityPrecision, PrecisionTable
from compatgate.core.facts.records import WheelPlace, WheelPlaces
from compatgate.core.node import parse_node_version
from compatgate.core.versions import parse_version
from compatgate.errors import BadInput, quote_error

TABLES: dict[str, type] = {
    "compilers": Compilers,
    "precision": PrecisionTable,
    "error_signatures": ErrorTable,
    "wheel_places": WheelPlaces,
    "kernel_modules": KernelModules,
    "node_components": NodeParts,
    "kernel_support": KernelSupport,
    "glibc": Glibc,
    "platforms": Platforms,
    "platform_machines": PlatformMachines,
    "jetson": Jetson,
}
GAPS = {" ... ": (240, ""), " .. ": (24, ""), "<>": (64, "blank"), "~": (3, "word")}
"""Marks in a pattern: characters at most, and what the gap does not have."""
MIN_PIECE = 2  # characters of a piece at least: shorter ones are everywhere
_FIELDS = re.compile(r"\{(\w*)\}")
_GAP = re.compile("(" + "|".join(map(re.escape, GAPS)) + ")")


def _precision(document: Record) -> Record:
    known = {row["name"] for row in document["precisions"]}
    for row in document["capabilities"]:
        for name in row["computes"]:
            if name not in known:
                where = f"capabilities[{row['capability']}].computes"
                raise BadInput("is not among precisions", field=where, value=name)
    slices = document["slices"][0]
    return {"slice_share": slices["least_share"], "slice_source": record_source(slices)}


def _error_table(document: Record) -> Record:
    known = {cause["id"] for cause in document["causes"]}
    frames = {frame["id"]: frame["text"] for frame in document.get("frames") or ()}
    rows = []
    for row in document["signatures"]:
        for name, existing in (("cause", known), ("frame", frames)):
            if row.get(name, None) not in (*existing, None):
                where = f"signatures[id={row['id']}].{name}"
                raise BadInput(f"{name} {row[name]!r} does not exist", field=where)
        around = frames[row["frame"]] if row.get("frame") else ["{}"]
        if any("{of}" in frame for frame in around) != bool(row.get("of")):
            where = f"signatures[id={row['id']}].of"
            raise BadInput("is for frames whose texts have {of}, and only those", field=where)
        text = [
            frame.replace("{of}", of).replace("{}", words)
            for of in row.get("of") or [""]
            for frame in around
            for words in row["text"]
        ]
        rows.append({**row, "text": text})
    return {"signatures": rows}


def _wheel_place(row: Record) -> Record:
    """Refuse labels that are no pattern, and an address with an unknown text in braces."""
    try:
        groups = re.compile(row.get("labels", "")).groupindex
    except re.error as error:
        raise BadInput(f"is no regular expression: {quote_error(error)}", field="labels") from None
    known = {*groups, "package", "name", "version", "label"}
    for field in _FIELDS.findall(row["url"]):
        if field not in known:
            raise BadInput(f"{{{field}}} is not one of {', '.join(sorted(known))}", field="url")
    return {}


def _pattern(text: str) -> Pattern:
    first, *rest = _GAP.split(text)
    pieces = [Piece(first)]
    pieces += [Piece(words, *GAPS[mark]) for mark, words in zip(rest[::2], rest[1::2], strict=True)]
    if any(len(piece.text) < MIN_PIECE and not piece.text.isdigit() for piece in pieces):
        raise BadInput(f"{text!r} has a piece of fewer than {MIN_PIECE} characters", field="text")
    return tuple(pieces)


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
        Compilers: Shape({"hosts": "host_compilers"}),
        Standards: Shape(make=lambda row: {"accepts": sorted(map(int, row["accepts"]))}),
        PrecisionTable: Shape(
            {"by_capability": "capabilities"}, _precision, {"by_capability": "capability"}
        ),
        CapabilityPrecision: Shape(make=lambda row: {"complete": row.get("complete", True)}),
        ErrorTable: Shape({"foreign_words": "foreign", "native_phrases": "native"}, _error_table),
        WheelPlace: Shape(make=_wheel_place),
        Signature: Shape(make=lambda row: {"patterns": tuple(map(_pattern, row["text"]))}),
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
