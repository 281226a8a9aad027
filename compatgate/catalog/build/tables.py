"""Decode the tables of host compilers, number formats and error texts."""

from __future__ import annotations

import re

from compatgate.catalog.build.decode import Decoder, Shape
from compatgate.catalog.build.values import Record, record_source
from compatgate.core.facts.compilers import Compilers, Standards
from compatgate.core.facts.errors import ErrorTable, Pattern, Piece, Signature
from compatgate.core.facts.precision import CapabilityPrecision, PrecisionTable
from compatgate.core.facts.records import WheelPlace, WheelPlaces
from compatgate.errors import BadInput, quote_error

TABLES: dict[str, type] = {
    "compilers": Compilers,
    "precision": PrecisionTable,
    "error_signatures": ErrorTable,
    "wheel_places": WheelPlaces,
}
GAPS = {" ... ": (240, False), " .. ": (24, False), "<>": (64, True)}
"""Marks in a pattern: characters at most, and whether the gap has no blank."""
MIN_PIECE = 2
"""Characters of a piece at least: shorter ones are everywhere."""
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
    """Put the words of signatures into their frames."""
    known = {cause["id"] for cause in document["causes"]}
    frames = {frame["id"]: frame["text"] for frame in document.get("frames") or ()}
    rows = []
    for row in document["signatures"]:
        for name, existing in (("cause", known), ("frame", frames)):
            if row.get(name, None) not in (*existing, None):
                where = f"signatures[id={row['id']}].{name}"
                raise BadInput(f"{name} {row[name]!r} does not exist", field=where)
        around = frames[row["frame"]] if row.get("frame") else ["{}"]
        text = [frame.replace("{}", words) for frame in around for words in row["text"]]
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


_FIELDS = re.compile(r"\{(\w*)\}")


def _pattern(text: str) -> Pattern:
    """Split a pattern at its gaps."""
    first, *rest = _GAP.split(text)
    pieces = [Piece(first)]
    pieces += [Piece(words, *GAPS[mark]) for mark, words in zip(rest[::2], rest[1::2], strict=True)]
    if any(len(piece.text) < MIN_PIECE for piece in pieces):
        raise BadInput(
            f"{text!r} has a piece of fewer than {MIN_PIECE} characters",
            field="text",
        )
    return tuple(pieces)


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
    }
)
