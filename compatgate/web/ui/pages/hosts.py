"""Staging hosts: where canaries run."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from compatgate.gate.runs.host_state import hours_of, in_words, state_of
from compatgate.store import clock
from compatgate.store.run_rows import HostRow
from compatgate.web.paging import Filter
from compatgate.web.ui.links import link
from compatgate.web.ui.listing import LongListing, found_by, table_of
from compatgate.web.ui.page import Ask, Shown, page
from compatgate.web.ui.tables import Cell, Column, Empty

_COLUMNS = (
    Column("name", "Host", "name"),
    Column("state", "State", "badge"),
    Column("gpu", "GPU", "name"),
    Column("driver", "Driver", "code"),
    Column("busy", "Busy slots"),
    Column("quiet", "Maintenance"),
    Column("executor", "Executor"),
    Column("health", "GPU health"),
    Column("worker", "Worker", "name"),
    Column("seen", "Last seen", "time"),
    Column("since", "Known since", "time"),
)
_EMPTY = Empty(
    "No staging hosts yet.",
    "A worker registers the hosts that its file names. Start one on a machine whose GPUs are not "
    "in production.",
    'printf \'[[host]]\\nname = "staging-1"\\ngpu = "L4"\\n\' > hosts.toml\n'
    "compatgate worker --hosts hosts.toml",
)
_NONE = Empty("No host has this GPU.", "Remove the filter to see all hosts.")


class HostsQuery(LongListing, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which hosts to list."""

    gpu: Filter | None = None


@page("/hosts", nav="hosts", query=HostsQuery)
def show(ask: Ask[HostsQuery]) -> Shown:
    """The hosts, with what they do now."""
    query, now = ask.query, clock.now()
    found = found_by(ask.gate.runs.hosts, query)
    skus = sorted({row.gpu for row in ask.gate.runs.hosts().items if row.gpu})
    rows = [_row(host, now) for host in found.items]
    table = table_of("hosts", _COLUMNS, rows, found, query, _EMPTY, unfit=_NONE)
    return Shown(
        "hosts.html", "Staging hosts", {"filters": [("gpu", "GPU", query.gpu, skus)]}, table
    )


def _row(host: HostRow, now: datetime) -> tuple[Any, ...]:
    state = state_of(host, now)
    return (
        Cell(host.name, link("runs", host=host.name), title="its runs"),
        Cell(state.name, note=state.why),
        host.gpu,
        host.driver,
        Cell(f"{host.busy} of {host.slots}", tone="" if host.busy else "muted"),
        "; ".join(in_words(one) for one in hours_of(host)),
        host.executor,
        "watched" if host.health == "local" else "not watched",
        host.worker,
        Cell(host.seen_at, tone="warn" if state.name == "stale" else ""),
        host.registered_at,
    )
