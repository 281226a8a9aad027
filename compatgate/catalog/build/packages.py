"""Records of one package, from ``packages/NAME.yaml``."""

from __future__ import annotations

import msgspec

from compatgate.catalog.build.read import Record
from compatgate.core.facts.records import PackageRecords
from compatgate.core.facts.records import Record as Measured


def packages(document: Record) -> PackageRecords:
    """Read every record of a package; the form of the file is that of `facts measure`."""
    name = document["package"]
    rows = [{"package": name, **row} for row in document["records"]]
    return PackageRecords(tuple(msgspec.convert(row, Measured) for row in rows))
