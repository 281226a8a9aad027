"""Build the table of number formats from ``precision.yaml``."""

from __future__ import annotations

from compatgate.catalog.build.values import Record, fill, pair, record_source
from compatgate.core.facts.precision import CapabilityPrecision, Precision, PrecisionTable
from compatgate.errors import BadInput


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
