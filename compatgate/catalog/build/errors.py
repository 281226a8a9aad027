"""Build the signatures of error texts from ``error_signatures.yaml``."""

from __future__ import annotations

import re

from compatgate.catalog.build.values import Record, record_source
from compatgate.core.facts.errors import Cause, ErrorTable, Pattern, Piece, Signature
from compatgate.errors import BadInput

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
    causes = tuple(_cause(record) for record in document["causes"])
    known = {cause.id for cause in causes}
    signatures = tuple(_signature(record, known) for record in document["signatures"])
    return ErrorTable(causes, signatures, tuple(document["foreign"]))


def _cause(record: Record) -> Cause:
    return Cause(
        id=record["id"],
        means=record["means"],
        next=record["next"],
        rules=tuple(record.get("rules", ())),
        fixes=tuple(record.get("fixes", ())),
        foreign=record.get("foreign", False),
        explains=tuple(record.get("explains", ())),
    )


def _signature(record: Record, known: set[str]) -> Signature:
    if record["cause"] not in known:
        raise BadInput(
            f"cause {record['cause']!r} does not exist",
            field=f"signatures[id={record['id']}].cause",
        )
    return Signature(
        id=record["id"],
        cause=record["cause"],
        certainty=record["certainty"],
        patterns=tuple(_pattern(text, record["id"]) for text in record["text"]),
        source=record_source(record),
        near=tuple(record.get("near", ())),
        symptom=record.get("symptom", False),
        sample=record["sample"],
        health=record.get("health"),
    )


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
