"""Build the tables of libraries and packages, and the closed list of components.

``cudnn.yaml`` and ``nccl.yaml`` hold the releases of a library, ``packages/NAME.yaml`` the records
and statements of one package, ``components.yaml`` the packages of the index and the components,
``cuda_components.yaml`` the libraries of each CUDA toolkit. ``make vocabulary`` writes the
components to ``compatgate/core/vocabulary.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from compatgate.catalog.build.values import (
    Record,
    drivers,
    fill,
    pair,
    pairs,
    record_source,
    release_version,
    sort_releases,
    source,
    version,
)
from compatgate.core import vocabulary
from compatgate.core.facts.nvidia import (
    Cudnn,
    CudnnBuild,
    CudnnRelease,
    CudnnRow,
    Nccl,
    NcclRelease,
    Pair,
    Source,
)
from compatgate.core.facts.packages import (
    CudaComponents,
    KnownPackage,
    Link,
    NamePattern,
    Packages,
    ToolkitPart,
)
from compatgate.core.facts.records import BuildList, PackageRecords, ProjectWheels, Statement
from compatgate.core.facts.records import Record as Measured
from compatgate.core.gpu_code import Arch, parse_arch
from compatgate.core.versions import parse_version
from compatgate.errors import BadInput


def cudnn(document: Record) -> Cudnn:
    """Build each cuDNN release with its builds per CUDA major."""
    forward = document["rules"]["hardware_forward_compat"]
    return Cudnn(
        releases=sort_releases(_cudnn_release(record) for record in document["releases"]),
        forward_compatible_from=version("cudnn", forward["from"]),
        forward_source=record_source(forward),
    )


def _cudnn_release(record: Record) -> CudnnRelease:
    builds = {
        int(major): _cudnn_build(record, int(major)) for major in sorted(record["cuda_majors"])
    }
    return CudnnRelease(release_version("cudnn", record["version"]), builds, record_source(record))


def _cudnn_build(record: Record, major: int) -> CudnnBuild:
    matrix = [r for r in record["support_matrix"] or () if r["package_cuda_major"] == major]
    rows = tuple(_cudnn_row(row) for row in matrix) or _floor(record, major)
    return CudnnBuild(
        minimum_capability=_minimum(record["min_cc"], major),
        rows=rows,
        source=record_source(record) if matrix else _derived_source(record, major),
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


def _derived_source(record: Record, major: int) -> Source:
    floor = (record["min_driver_linux_by_cuda_major"] or {}).get(str(major))
    if not floor:
        return record_source(record)
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
    releases = sort_releases(_nccl_release(record) for record in document["releases"])
    first = next(release.version for release in releases if 13 in release.cuda)
    return Nccl(releases, first_cuda13=first)


def _nccl_release(record: Record) -> NcclRelease:
    packages = {pair(text)[0] for text in record["deb_rpm_cuda_suffixes_seen"] or ()}
    majors = tuple(sorted({*record["cuda_majors_of_wheels"], *packages}))
    return NcclRelease(
        version("nccl", record["version"]),
        majors,
        _nccl_capabilities(record, majors),
        record_source(record),
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


def packages(document: Record) -> PackageRecords:
    """Read every record of a package, in the format that ``facts measure`` prints."""
    name = document["package"]
    rows = [{"package": name, **row} for row in document.get("records") or ()]
    return PackageRecords(
        tuple(msgspec.convert(row, Measured) for row in rows),
        tuple(map(_statement, document.get("statements") or ())),
    )


def _statement(row: Record) -> Statement:
    return fill(
        Statement,
        row,
        compiled=row.get("compiled"),
        least_capability=_capability(row, "least_capability"),
        last_capability=_capability(row, "last_capability"),
        builds=tuple(BuildList(_code(b["code"]), b.get("cuda")) for b in row.get("builds") or ()),
        wheels=tuple(
            ProjectWheels(
                tuple(one["labels"]),
                _code(one["code"]),
                one.get("cpu"),
                tuple(one.get("python") or ()),
                one.get("cxx11_abi"),
            )
            for one in row.get("wheels") or ()
        ),
    )


def _capability(row: Record, field: str) -> tuple[int, int] | None:
    return pair(row[field]) if field in row else None


def _code(names: list[str]) -> tuple[Arch, ...]:
    return tuple(code for name in names for code in parse_arch(name))


def components(document: Record) -> Packages:
    """Read the known packages, their content and the meaning of names.

    Raises:
        BadInput: the components differ from those of this program.
    """
    if "components" in document:
        check_vocabulary(document["components"])
    return Packages(
        packages=tuple(_package(record) for record in document["packages"]),
        names=tuple(
            NamePattern(record["pattern"], record["why"], record_source(record))
            for record in document["names"]
        ),
    )


def _package(record: Record) -> KnownPackage:
    exact_before = record.get("exact_before")
    exact = parse_version(record["name"], exact_before) if exact_before else None
    return fill(KnownPackage, record, exact_before=exact)


def cuda_components(document: Record) -> CudaComponents:
    """Read the toolkits that each release of each library belongs to, by package."""
    return CudaComponents(
        parts=tuple(
            ToolkitPart(
                name, row["component"], int(major), _toolkits(row["component"], major, document)
            )
            for row in document["packages"]
            for major, name in row["names"].items()
        ),
        links=tuple(
            Link(row["component"], tuple(row["users"]), row["statement"], record_source(row))
            for row in document.get("links") or ()
        ),
        source=record_source(document["packages"][0]),
    )


def _toolkits(component: str, major: str, document: Record) -> dict[str, tuple[Pair, ...]]:
    """Map each version of a component to the toolkits of a CUDA major that have it, ascending."""
    found: dict[str, set[Pair]] = {}
    for release in document["releases"]:
        version = release["components"].get(component)
        if version and release["cuda"].startswith(f"{major}."):
            found.setdefault(version, set()).add(pair(release["cuda"]))
    for patch in document.get("patches") or ():
        if patch["component"] == component and patch["cuda"].startswith(f"{major}."):
            found.setdefault(patch["version"], set()).add(pair(patch["cuda"]))
    return {version: tuple(sorted(pairs)) for version, pairs in found.items()}


_HEAD = '''"""The components of matrix/facts/components.yaml, written by ``make vocabulary``."""

from __future__ import annotations

from typing import Any
'''
_TEXT = {
    "COMPONENTS": "Name, form of version, kind and title, in canonical order.",
    "ALIASES": "Other names that mean a component.",
    "NOT_ON_INDEX": "Names of components that are other packages, stubs or parts on the index.",
    "CONDA": "Names on channels of conda, where they are not the component's.",
    "LIBRARIES": "File names of libraries up to ``.so``.",
    "DLLS": "File names of libraries of Windows up to the version: ``cudart64_12.dll``.",
    "MODULES": "Top-level modules that Python imports.",
    "FOLDERS": "Folders of site-packages that hold a component's files.",
    "BUILT_PER_CUDA": "Components of which a version has a build for each CUDA.",
    "META": "Components whose package brings nothing but the one for a CUDA.",
    "CUDA_BY_PLUGIN": "Components whose own package has no CUDA.",
    "NEEDS_URL": "Components that no name alone identifies.",
}


def vocabulary_values(components: Sequence[Record]) -> dict[str, Any]:
    """Return the values of the vocabulary module by variable name."""
    return {
        "COMPONENTS": tuple((c["name"], c["versions"], c["kind"], c["title"]) for c in components),
        "ALIASES": _name_map(components, "aliases"),
        "NOT_ON_INDEX": tuple(n for c in components for n in c.get("not_on_index", ())),
        "CONDA": _name_map(components, "conda"),
        "LIBRARIES": _name_map(components, "libraries"),
        "DLLS": _name_map(components, "dlls"),
        "MODULES": _name_map(components, "modules"),
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


def vocabulary_source(components: Sequence[Record]) -> str:
    """Return the text of the vocabulary module."""
    return _HEAD + "".join(
        _assignment(name, value) for name, value in vocabulary_values(components).items()
    )


def check_vocabulary(components: Sequence[Record]) -> None:
    """Refuse components that differ from those of this program.

    Raises:
        BadInput: they differ; names the difference.
    """
    for name, value in vocabulary_values(components).items():
        if getattr(vocabulary, name) != value:
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


def _assignment(name: str, value: Any) -> str:
    if isinstance(value, dict):
        kind, opened, closed = "dict[str, str]", "{", "}"
        lines = [f'"{key}": "{of}",' for key, of in value.items()]
    else:
        kind = f"tuple[{'tuple[Any, ...]' if name == 'COMPONENTS' else 'str'}, ...]"
        opened, closed = "(", ")"
        lines = [f"{_literal(item)}," for item in value]
    if len(lines) == 1:
        return f'\n{name}: {kind} = {opened}{lines[0]}{closed}\n"""{_TEXT[name]}"""\n'
    body = "".join(f"    {line}\n" for line in lines)
    return f'\n{name}: {kind} = {opened}\n{body}{closed}\n"""{_TEXT[name]}"""\n'


def _literal(item: Any) -> str:
    if isinstance(item, tuple):
        return f"({', '.join(map(_literal, item))})"
    return f'"{item}"'
