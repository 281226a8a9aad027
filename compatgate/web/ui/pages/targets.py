"""Targets: where stacks run, what is asked of them there, and what was answered."""

from __future__ import annotations

from typing import Any

import msgspec

from compatgate.documents.specs import TargetDoc, decode
from compatgate.gate.snapshot import Snapshot
from compatgate.store.rows import Stored
from compatgate.web.paging import Filter, Search
from compatgate.web.ui.forms import choices
from compatgate.web.ui.links import link
from compatgate.web.ui.listing import LongListing, found_by, table_of
from compatgate.web.ui.page import Ask, Shown, page
from compatgate.web.ui.tables import NOTHING_FITS, Cell, Column, Empty

LATELY = 7
"""Days whose decisions the list counts."""
_COLUMNS = (
    Column("name", "Target"),
    Column("labels", "Labels"),
    Column("gpus", "GPUs"),
    Column("drivers", "Drivers", "code"),
    Column("nodes", "Nodes", "number"),
    Column("mode", "Mode"),
    Column("entries", "Entries", "number"),
    Column("stopped", "Denied, 7 d", "number"),
    Column("usable", "Usable", "badge"),
)
_EMPTY = Empty(
    "No targets yet.",
    "A target is a place to run: pools of nodes, each with one GPU product and one driver.",
    "compatgate matrix import matrix/examples --reason 'a first matrix'",
)


class TargetQuery(LongListing, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which targets."""

    search: Search | None = None
    label: Filter | None = None
    gpu: Filter | None = None
    driver: Filter | None = None


@page("/targets", nav="targets", query=TargetQuery)
def listing(ask: Ask[TargetQuery]) -> Shown:
    """Targets by name."""
    query, snapshot = ask.query, ask.gate.snapshot()
    found = found_by(ask.gate.matrix.list_targets, query)
    stopped = ask.gate.history.stopped_per_target(LATELY)
    lines = [_line(row, snapshot, stopped.get(row.name, 0)) for row in found.items]
    table = table_of("targets", _COLUMNS, lines, found, query, _EMPTY, unfit=NOTHING_FITS)
    pools = [pool for one in snapshot.documents.values() for pool in one.spec.pools]
    context = {
        "query": query,
        "gpus": choices({pool.gpu for pool in pools}),
        "drivers": choices({pool.driver for pool in pools}),
        "labels": choices(
            {f"{k}={v}" for one in snapshot.documents.values() for k, v in _labels(one).items()}
        ),
    }
    return Shown("targets.html", "Targets", context, table=table)


def _labels(document: TargetDoc) -> dict[str, str]:
    return document.metadata.labels


def _line(row: Stored, snapshot: Snapshot, stopped: int) -> tuple[Any, ...]:
    document = document_of(row)
    pools = document.spec.pools
    why = snapshot.unusable.get(row.name, "")
    return (
        Cell(row.name, href=link("targets", row.name)),
        ", ".join(f"{key}={value}" for key, value in document.metadata.labels.items()),
        ", ".join(dict.fromkeys(pool.gpu for pool in pools)),
        ", ".join(dict.fromkeys(pool.driver for pool in pools)),
        sum(pool.count for pool in pools),
        document.spec.policy.mode,
        len(snapshot.matrix.entries.of(row.name)),
        Cell(stopped, href=link("decisions", target=row.name, allowed="no")) if stopped else 0,
        Cell("no", tone="fail", title=why) if why else Cell("yes", tone="pass"),
    )


def document_of(row: Stored) -> TargetDoc:
    """A stored target as its document."""
    found = decode("Target", msgspec.json.encode(row.document))
    assert isinstance(found, TargetDoc)  # noqa: S101 - what was asked for
    return found
