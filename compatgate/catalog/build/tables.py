"""Build the tables of host compilers, number formats and error texts.

Sources: ``compilers.yaml``, ``precision.yaml`` and ``error_signatures.yaml``.
"""

from __future__ import annotations

import re

from compatgate.catalog.build.values import Record, fill, pair, record_source
from compatgate.core.constraints import Constraint, parse_constraint
from compatgate.core.facts.compilers import (
    BuildConflict,
    Compilers,
    HostCompiler,
    ListedCompiler,
    Standards,
)
from compatgate.core.facts.errors import Cause, ErrorTable, Pattern, Piece, Signature
from compatgate.core.facts.precision import CapabilityPrecision, Precision, PrecisionTable
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


def precision(document: Record) -> PrecisionTable:
    """Build formats, and the rows of each compute capability.

    Raises:
        BadInput: a capability computes in a format that the file does not name.
    """
    formats = {
        record["name"]: fill(Precision, record, instead=record.get("instead", ""))
        for record in document["precisions"]
    }
    rows = sorted((_row(record) for record in document["capabilities"]), key=_capability)
    for row in rows:
        for name in row.computes:
            if name not in formats:
                where = ".".join(map(str, row.capability))
                raise BadInput(
                    "is not among precisions",
                    field=f"capabilities[{where}].computes",
                    value=name,
                )
    slices = document["slices"][0]
    return PrecisionTable(
        precisions=formats,
        by_capability={".".join(map(str, row.capability)): row for row in rows},
        slice_share=float(slices["least_share"]),
        slice_source=record_source(slices),
    )


def _capability(row: CapabilityPrecision) -> tuple[int, int]:
    return row.capability


def _row(record: Record) -> CapabilityPrecision:
    complete = record.get("complete", True)
    return fill(
        CapabilityPrecision, record, capability=pair(record["capability"]), complete=complete
    )


GAPS = {" ... ": (240, False), " .. ": (24, False), "<>": (64, True)}
"""Marks in a pattern: characters at most, and whether the gap has no blank."""
MIN_PIECE = 2
"""Characters of a piece at least: shorter ones are everywhere."""
_GAP = re.compile("(" + "|".join(map(re.escape, GAPS)) + ")")


def error_signatures(document: Record) -> ErrorTable:
    """Build causes and signatures.

    Raises:
        BadInput: a pattern has an empty or too short piece, or a cause is not known.
    """
    causes = tuple(fill(Cause, record) for record in document["causes"])
    known = {cause.id for cause in causes}
    signatures = tuple(_signature(record, known) for record in document["signatures"])
    foreign, native = document["foreign"], document.get("native", ())
    return ErrorTable(causes, signatures, tuple(foreign), tuple(native))


def _signature(record: Record, known: set[str]) -> Signature:
    if record["cause"] not in known:
        raise BadInput(
            f"cause {record['cause']!r} does not exist",
            field=f"signatures[id={record['id']}].cause",
        )
    patterns = tuple(_pattern(text, record["id"]) for text in record["text"])
    return fill(Signature, record, patterns=patterns)


def _pattern(text: str, name: str) -> Pattern:
    """Split a pattern at its gaps."""
    first, *rest = _GAP.split(text)
    pieces = [Piece(first)]
    pieces += [Piece(words, *GAPS[mark]) for mark, words in zip(rest[::2], rest[1::2], strict=True)]
    if any(len(piece.text) < MIN_PIECE for piece in pieces):
        raise BadInput(
            f"{text!r} has a piece of fewer than {MIN_PIECE} characters",
            field=f"signatures[id={name}].text",
        )
    return tuple(pieces)
