"""Define what depends on an entry as REST carries it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from compatgate.core.matrix import EntryStatus
from compatgate.core.request import Mode


class DependentTargetBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A target of the entry; `pools` are those with a GPU and driver that the entry is for.

    `stops`: its policy requires an entry and denies.
    """

    target: str
    owner: str | None
    mode: Mode
    stops: bool
    pools: list[str]
    declared_nodes: int
    reported_nodes: Annotated[
        int, Meta(description="number of reported nodes with a GPU and driver of the entry")
    ]


class DependentStackBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A stack that the entry decided; `lost`: the gate would not allow it without the entry.

    `lost` is null where the question cannot be re-evaluated.
    """

    verdict_id: str
    target: str
    stack: dict[str, Any]
    image: str | None
    decisions: int
    first: datetime
    last: datetime
    lost: bool | None


class DependentNodeBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A reported node of one of the targets, whose GPU and driver the entry is for."""

    cluster: str
    name: str
    targets: list[str]
    driver: str | None


class DependentsBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The dependents of an entry. `left_out` lists parts that exceeded a limit."""

    entry: str
    owner: str | None
    status: EntryStatus
    since: Annotated[datetime, Meta(description="time of the first recorded question")]
    targets: list[DependentTargetBody]
    stacks: Annotated[list[DependentStackBody], Meta(description="recorded stacks, latest first")]
    decisions: Annotated[int, Meta(description="number of decisions based on the entry")]
    lost: Annotated[int, Meta(description="number of stacks that no other entry would allow")]
    nodes: Annotated[
        list[DependentNodeBody], Meta(description="nodes that depend on the entry, at most 500")
    ]
    node_count: int
    replaces: Annotated[list[str], Meta(description="entries that name this entry as replacement")]
    left_out: list[str]
    matrix_revision: int
