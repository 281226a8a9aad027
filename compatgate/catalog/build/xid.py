"""Build the table of Xid and SXid codes from ``xid.yaml``."""

from __future__ import annotations

from compatgate.catalog.build.values import Record, of
from compatgate.core.constraints import parse_constraint
from compatgate.core.facts.xid import (
    Notice,
    NvlinkCase,
    NvlinkUnit,
    OnDriver,
    Recovery,
    Severity,
    SXid,
    Xid,
    XidTable,
)
from compatgate.errors import BadInput


def xid(document: Record) -> XidTable:
    """Build the codes, each with its severity and NVIDIA's action."""
    classes: dict[str, Severity] = {
        row["class"]: row["severity"] for row in document["severity_classes"]
    }
    return XidTable(
        tuple(_xid(record, classes) for record in document["xids"]),
        tuple(_sxid(record) for record in document["sxids"]),
        tuple(
            Notice(row["message"], row["meaning"], row["severity"], row["action"], of(row))
            for row in document["messages"]
        ),
        tuple(
            Recovery(
                row["value"],
                tuple(name.lower() for name in row["names"]),
                row["severity"],
                row["action"],
            )
            for row in document["recovery_actions"]
        ),
        tuple(_unit(record) for record in document["nvlink5"]),
        {row["bucket"]: row["advice"] for row in document["resolutions"]},
    )


def _xid(record: Record, classes: dict[str, Severity]) -> Xid:
    # A code without an action in the catalog is a warning: unknown does not mean harmless.
    severity = record.get("severity") or classes.get(record["severity_class"] or "", "warning")
    return Xid(
        code=record["xid"],
        mnemonic=record["mnemonic"],
        meaning=record["meaning"],
        unused=record["unused_in_current_catalog"],
        severity=severity,
        action=record["nvidia_immediate_action"],
        investigate=record["nvidia_investigatory_action"],
        source=of(record),
        legacy=record.get("legacy_meaning_pre_ampere"),
        origin=tuple(record.get("origin") or ()),
        accompanies=record.get("accompanies"),
        on_driver=tuple(_on_driver(record["xid"], row) for row in record.get("by_driver") or ()),
    )


def _on_driver(code: int, row: Record) -> OnDriver:
    try:
        driver = parse_constraint("driver", row["driver"])
    except BadInput as error:
        raise error.at(f"xids[xid={code}].by_driver") from error
    return OnDriver(
        driver,
        row.get("severity"),
        row.get("nvidia_immediate_action"),
        row.get("nvidia_investigatory_action"),
        row.get("meaning"),
    )


def _sxid(row: Record) -> SXid:
    return SXid(row["sxid"], row["meaning"], row["class"], row["severity"], row["action"], of(row))


def _unit(record: Record) -> NvlinkUnit:
    return NvlinkUnit(
        record["xid"],
        tuple(name.upper() for name in record["unit"].split("/")),
        int(record["v1"], 2),
        int(record["v2"], 2),
        tuple(
            NvlinkCase(
                row["reason"],
                None if row["status"] is None else int(row["status"], 16),
                row["severity"],
                row["action"],
                row["investigate"],
                row.get("promoted"),
            )
            for row in record["cases"]
        ),
    )
