"""Records and statements of one package, from ``packages/NAME.yaml``."""

from __future__ import annotations

import msgspec

from compatgate.catalog.build.read import Record, of, pair
from compatgate.core.arch import Arch, parse_arch
from compatgate.core.facts.records import BuildList, PackageRecords, ProjectWheels, Statement
from compatgate.core.facts.records import Record as Measured


def packages(document: Record) -> PackageRecords:
    """Read every record of a package; the form of the file is that of `facts measure`."""
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
