"""Decode the tables of libraries and packages, and check the closed list of components."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from compatgate.catalog.build.decode import Decoder, Shape
from compatgate.catalog.build.values import Record, pair, pairs, record_source, source
from compatgate.core import vocabulary
from compatgate.core.facts.nvidia import (
    Cudnn,
    CudnnBuild,
    CudnnRelease,
    CudnnRow,
    Nccl,
    NcclRelease,
    Pair,
)
from compatgate.core.facts.packages import CudaComponents, Packages, ToolkitPart
from compatgate.core.facts.records import PackageRecords, ProjectWheels
from compatgate.core.versions import natural_key
from compatgate.errors import BadInput

TABLES: dict[str, type] = {
    "cudnn": Cudnn,
    "nccl": Nccl,
    "components": Packages,
    "cuda_components": CudaComponents,
    "packages": PackageRecords,
}


def _cudnn(document: Record) -> Record:
    forward = document["rules"]["hardware_forward_compat"]
    return {"forward_compatible_from": forward["from"], "forward_source": record_source(forward)}


def _cudnn_release(row: Record) -> Record:
    return {
        "version": ".".join(row["version"].split(".")[:3]),
        "builds": {int(m): {**row, "major": int(m)} for m in sorted(row["cuda_majors"])},
    }


def _cudnn_build(row: Record) -> Record:
    """Take the rows of the support matrix; without them, the driver floor of the CUDA major."""
    major, own = row["major"], record_source(row)
    rows = [r for r in row["support_matrix"] or () if r["package_cuda_major"] == major]
    floor = (row["min_driver_linux_by_cuda_major"] or {}).get(str(major))
    if not rows and floor:
        rows = [{"min_driver_linux": floor["value"], "min_driver_windows": None}]
        own = source(
            f"driver floor of CUDA {major} in the support matrices of neighbouring releases, as"
            f" none of cuDNN {row['version']} was found",
            confidence=floor["confidence"],
        )
    least = row["min_cc"]
    of_least = source(row["min_cc_source"], confidence=row["min_cc_confidence"]) if least else None
    return {
        "minimum_capability": least.get(str(major)) if isinstance(least, dict) else least,
        "rows": rows,
        "source": own,
        "capability_source": of_least,
    }


def _cudnn_row(row: Record) -> Record:
    drivers = {"linux": row["min_driver_linux"], "windows": row["min_driver_windows"]}
    return {"driver": drivers}


def _nccl(document: Record) -> Record:
    """Find the first release with a build for CUDA 13."""
    built = (row["version"] for row in document["releases"] if 13 in _cuda_majors(row))
    return {"first_cuda13": min(built, key=natural_key)}


def _cuda_majors(row: Record) -> tuple[int, ...]:
    """Return the CUDA majors of wheels and of packages."""
    packages = {pair(text)[0] for text in row["deb_rpm_cuda_suffixes_seen"] or ()}
    return tuple(sorted({*row["cuda_majors_of_wheels"], *packages}))


def _nccl_capabilities(row: Record) -> dict[int, Pair]:
    """Return the minimum capability per CUDA major.

    Wheels have the file's own conclusion, packages the lowest default target.
    """
    stated = row["min_cc_derived"] or {}
    least = {int(name.removeprefix("cu")): pair(text) for name, text in stated.items()}
    for cuda, generated in (row["default_gencode_by_build_cuda"] or {}).items():
        major = pair(cuda)[0]
        if generated and major in _cuda_majors(row):
            least.setdefault(major, pairs(generated["sass"])[0])
    return dict(sorted(least.items()))


def _package_records(document: Record) -> Record:
    name = document["package"]
    return {"records": [{"package": name, **row} for row in document.get("records") or ()]}


def _packages(document: Record) -> Record:
    """Refuse other components than those of this program."""
    if "components" in document:
        check_vocabulary(document["components"])
    return {}


def _cuda_components(document: Record) -> Record:
    """List the libraries of toolkits as packages, each with the toolkits of its releases."""
    parts = tuple(
        ToolkitPart(
            name, row["component"], int(major), _toolkits(row["component"], major, document)
        )
        for row in document["packages"]
        for major, name in row["names"].items()
    )
    return {
        "parts": parts,
        "links": document.get("links"),
        "source": record_source(document["packages"][0]),
    }


def _toolkits(component: str, major: str, document: Record) -> dict[str, tuple[Pair, ...]]:
    built = [
        (release["components"].get(component), release["cuda"]) for release in document["releases"]
    ]
    built += [
        (patch["version"], patch["cuda"])
        for patch in document.get("patches") or ()
        if patch["component"] == component
    ]
    toolkits: dict[str, set[Pair]] = {}
    for version, cuda in built:
        if version and cuda.startswith(f"{major}."):
            toolkits.setdefault(version, set()).add(pair(cuda))
    return {version: tuple(sorted(pairs)) for version, pairs in toolkits.items()}


def vocabulary_values(
    components: Sequence[Record], packages: Sequence[Record] = ()
) -> dict[str, Any]:
    """Return the values of the vocabulary module by variable name."""
    return {
        "COMPONENTS": tuple((c["name"], c["versions"], c["kind"], c["title"]) for c in components),
        "ALIASES": _name_map(components, "aliases"),
        "PACKAGE_ALIASES": _name_map(packages, "aliases"),
        "NOT_ON_INDEX": tuple(n for c in components for n in c.get("not_on_index", ())),
        "CONDA": _name_map(components, "conda"),
        "LIBRARIES": _name_map(components, "libraries"),
        "DLLS": _name_map(components, "dlls"),
        "FOLDERS": {
            folder: c["name"]
            for c in components
            for folder in c.get("folders", c.get("modules", ()))
        },
        "BUILT_PER_CUDA": _flagged_names(components, "built_per_cuda"),
        "META": _flagged_names(components, "meta"),
        "CUDA_BY_PLUGIN": _flagged_names(components, "cuda_by_plugin"),
        "NEEDS_URL": _flagged_names(components, "needs_url"),
    }


def check_vocabulary(components: Sequence[Record]) -> None:
    """Refuse components that differ from those of this program."""
    for name, value in vocabulary_values(components).items():
        if name != "PACKAGE_ALIASES" and getattr(vocabulary, name) != value:
            raise BadInput(
                "the list of components differs from the list in this program",
                field="components",
                value=name,
                hint="the list is closed: an overlay adds to packages; in a checkout of the source,"
                " run make vocabulary",
            )


def _name_map(components: Iterable[Record], field: str) -> dict[str, str]:
    return {name: c["name"] for c in components for name in c.get(field, ())}


def _flagged_names(components: Iterable[Record], field: str) -> tuple[str, ...]:
    return tuple(c["name"] for c in components if c.get(field))


DECODER = Decoder(
    {
        Cudnn: Shape(make=_cudnn, order={"releases": "version"}),
        CudnnRelease: Shape(make=_cudnn_release),
        CudnnBuild: Shape(make=_cudnn_build),
        CudnnRow: Shape(
            {"capabilities": "compute_capabilities", "cuda": "cuda_toolkits"}, _cudnn_row
        ),
        Nccl: Shape(make=_nccl, order={"releases": "version"}),
        NcclRelease: Shape(
            make=lambda row: {
                "cuda": _cuda_majors(row),
                "minimum_capability": _nccl_capabilities(row),
            }
        ),
        PackageRecords: Shape(make=_package_records),
        ProjectWheels: Shape({"pythons": "python", "new_abi": "cxx11_abi"}),
        Packages: Shape(make=_packages),
        CudaComponents: Shape(make=_cuda_components),
    }
)
