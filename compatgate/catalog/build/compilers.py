"""Build the table of host compilers from ``compilers.yaml``."""

from __future__ import annotations

from compatgate.catalog.build.values import Record, fill
from compatgate.core.facts.compilers import (
    BuildConflict,
    Compilers,
    HostCompiler,
    ListedCompiler,
    Standards,
)
from compatgate.core.matrix import Constraint, parse_constraint
from compatgate.core.versions import parse_version
from compatgate.errors import BadInput


def compilers(document: Record) -> Compilers:
    """Build host compilers, listed ranges, C++ standards and conflicts.

    Raises:
        BadInput: a range of versions is malformed; ``field`` names the record.
    """
    return Compilers(
        hosts=tuple(_host(record) for record in document["host_compilers"]),
        listed=tuple(_listed(record) for record in document["listed"]),
        standards=tuple(_standards(record) for record in document["standards"]),
        conflicts=tuple(_conflict(record) for record in document["conflicts"]),
    )


def _host(record: Record) -> HostCompiler:
    where = f"host_compilers[{record['cuda']} {record['compiler']}].accepts"
    accepts = _range(record["compiler"], record["accepts"], where)
    return fill(HostCompiler, record, accepts=accepts)


def _listed(record: Record) -> ListedCompiler:
    compiler, where = record["compiler"], f"listed[{record['cuda']} {record['compiler']}]"
    return fill(
        ListedCompiler,
        record,
        cuda=_range("cuda", record["cuda"], f"{where}.cuda"),
        range=_range(compiler, record["range"], f"{where}.range"),
    )


def _standards(record: Record) -> Standards:
    return fill(
        Standards,
        record,
        cuda=_range("cuda", record["cuda"], f"standards[{record['cuda']}].cuda"),
        accepts=tuple(sorted(int(text) for text in record["accepts"])),
    )


def _conflict(record: Record) -> BuildConflict:
    where = f"conflicts[{record['id']}].components"
    release = record.get("release")
    return fill(
        BuildConflict,
        record,
        components={
            name: _range(name, text, f"{where}.{name}")
            for name, text in record["components"].items()
        },
        release=parse_version("cuda", release) if release else None,
    )


def _range(component: str, text: str, where: str) -> Constraint:
    try:
        return parse_constraint(component, text)
    except BadInput as error:
        error.field = where
        raise
