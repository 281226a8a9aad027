"""Driver branches and their end of life, from ``driver_branches.yaml``."""

from __future__ import annotations

from calendar import monthrange
from typing import Any

from compatgate.catalog.build.read import Record, driver, of, pair
from compatgate.core.facts import Branch, DriverBranches
from compatgate.core.versions import Version


def driver_branches(document: Record) -> DriverBranches:
    """One entry per branch, ascending."""
    branches = sorted((_branch(record) for record in document["branches"]), key=lambda b: b.branch)
    return DriverBranches({branch.branch: branch for branch in branches})


def _branch(record: Record) -> Branch:
    return Branch(
        branch=int(record["branch"]),
        type=record["type"],
        eol=_end_of_life(record),
        ended=bool(record.get("ended", False)),
        cuda=pair(record["nvidia_smi_cuda"]) if record["nvidia_smi_cuda"] else None,
        first=_release(record["first_linux_release"]),
        last=_release(record["last_linux_release_seen"]),
        source=of(record),
        note=_note(record),
    )


def _end_of_life(record: Record) -> str | None:
    """The earliest date that any edition published: an operator plans for the sooner one."""
    dates = [record["eol"], *(c["eol"] for c in record.get("eol_conflict", ()))]
    return min((last_day(date) for date in dates if date), default=None)


def last_day(date: str) -> str:
    """``2026-02`` is the 28th of February; a full date stays."""
    if len(date) > len("2026-02"):
        return date
    year, month = (int(part) for part in date.split("-"))
    return f"{date}-{monthrange(year, month)[1]:02d}"


def _release(text: Any) -> Version | None:
    return driver(text) if text else None


def _note(record: Record) -> str:
    conflict = [f"{c['edition']}: {c['eol']}" for c in record.get("eol_conflict", ())]
    editions = f"published dates differ ({'; '.join(conflict)})" if conflict else ""
    return "; ".join(filter(None, (editions, record.get("eol_status"), record.get("note"))))
