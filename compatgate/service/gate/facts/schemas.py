"""Define facts and rules as REST carries them."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct


class FactTable(Struct, frozen=True, forbid_unknown_fields=True):
    """A table of facts."""

    name: str
    records: Annotated[
        dict[str, int], Meta(description="number of records in each list of the table")
    ]


class FactsBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The facts of the gate."""

    digest: Annotated[str, Meta(description="digest of all tables; every verdict names it")]
    overlays: list[str]
    tables: list[FactTable]


class FactRecord(Struct, frozen=True, forbid_unknown_fields=True):
    """A record of a table, with every note and source."""

    part: Annotated[str, Meta(description="name of a list in the table")]
    name: str
    record: dict[str, Any]


class RuleBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A rule, and its documentation."""

    id: Annotated[str, Meta(pattern="^CG[0-9]{3}$")]
    name: str
    about_facts: Annotated[
        bool, Meta(description="true: decides only by vendor facts, not by the matrix")
    ]
    documentation: str
