"""Build the tables of packages and the closed list of components that the core reads.

``packages/NAME.yaml`` holds records and statements of one package, ``components.yaml`` the
packages of the index and the components, ``cuda_components.yaml`` the libraries of each CUDA
toolkit. ``make vocabulary`` writes the components to ``compatgate/core/vocabulary.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from compatgate.catalog.build.values import Record, of, pair
from compatgate.core import vocabulary
from compatgate.core.facts.nvidia import Pair
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


def packages(document: Record) -> PackageRecords:
    """Read every record of a package, in the format that ``facts measure`` prints."""
    name = document["package"]
    rows = [{"package": name, **row} for row in document.get("records") or ()]
    return PackageRecords(
        tuple(msgspec.convert(row, Measured) for row in rows),
        tuple(map(_statement, document.get("statements") or ())),
    )


def _statement(row: Record) -> Statement:
    return Statement(
        versions=row["versions"],
        compiled=row.get("compiled"),
        source=of(row),
        says=row.get("says", ""),
        least_capability=_capability(row, "least_capability"),
        last_capability=_capability(row, "last_capability"),
        builds=tuple(BuildList(_code(b["code"]), b.get("cuda")) for b in row.get("builds") or ()),
        fixed=row.get("fixed", False),
        requires=tuple(row.get("requires") or ()),
        torch_wheels=tuple(row.get("torch_wheels") or ()),
        wheels=tuple(
            ProjectWheels(tuple(one["labels"]), _code(one["code"]), one.get("cpu"))
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
            NamePattern(record["pattern"], record["why"], of(record))
            for record in document["names"]
        ),
    )


def _package(record: Record) -> KnownPackage:
    exact_before = record.get("exact_before")
    return KnownPackage(
        name=record["name"],
        carries=record["carries"],
        source=of(record),
        optional=bool(record.get("optional")),
        gpus=record.get("gpus") or "",
        note=record.get("note") or "",
        exact_before=parse_version(record["name"], exact_before) if exact_before else None,
    )


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
            Link(row["component"], tuple(row["users"]), row["statement"], of(row))
            for row in document.get("links") or ()
        ),
        source=of(document["packages"][0]),
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


def values_of(components: Sequence[Record]) -> dict[str, Any]:
    """Return the values of the vocabulary module by variable name."""
    return {
        "COMPONENTS": tuple((c["name"], c["versions"], c["kind"], c["title"]) for c in components),
        "ALIASES": _named(components, "aliases"),
        "NOT_ON_INDEX": tuple(n for c in components for n in c.get("not_on_index", ())),
        "CONDA": _named(components, "conda"),
        "LIBRARIES": _named(components, "libraries"),
        "DLLS": _named(components, "dlls"),
        "MODULES": _named(components, "modules"),
        "FOLDERS": {
            folder: c["name"]
            for c in components
            for folder in c.get("folders", c.get("modules", ()))
        },
        "BUILT_PER_CUDA": _marked(components, "built_per_cuda"),
        "META": _marked(components, "meta"),
        "CUDA_BY_PLUGIN": _marked(components, "cuda_by_plugin"),
        "NEEDS_URL": _marked(components, "needs_url"),
    }


def source_of(components: Sequence[Record]) -> str:
    """Return the text of the vocabulary module."""
    return _HEAD + "".join(_assigned(name, value) for name, value in values_of(components).items())


def check_vocabulary(components: Sequence[Record]) -> None:
    """Refuse components that differ from those of this program.

    Raises:
        BadInput: they differ; names the difference.
    """
    for name, value in values_of(components).items():
        if getattr(vocabulary, name) != value:
            raise BadInput(
                "the components differ from those this program was built with",
                field="components",
                value=name,
                hint="the list is closed: an overlay adds to packages; a developer runs"
                " make vocabulary",
            )


def _named(components: Iterable[Record], field: str) -> dict[str, str]:
    return {name: c["name"] for c in components for name in c.get(field, ())}


def _marked(components: Iterable[Record], field: str) -> tuple[str, ...]:
    return tuple(c["name"] for c in components if c.get(field))


def _assigned(name: str, value: Any) -> str:
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
