"""Which worker has which run; every change asks for the attempt that it believes in."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct
from sqlalchemy import and_, or_, select, update
from sqlalchemy.orm import Session

from compatgate.core.versions import parse_version
from compatgate.errors import BadInput
from compatgate.store import hosts, runs
from compatgate.store.models import Run
from compatgate.store.run_rows import ACTIVE, RunRow


class Offer(Struct, frozen=True):
    """A host that could take a run.

    Attributes:
        gpu: SKU; None: it has no GPUs.
        driver_key: None: not known.
        slots: all that it has.
        spans: it runs a workload on several nodes at once.
    """

    host: str
    gpu: str | None
    driver_key: str | None
    slots: int
    spans: bool = False


class Held(Struct, frozen=True):
    """What a worker says that it has."""

    run: str
    attempt: int
    worker: str


def abandoned(session: Session, names: Sequence[str], at: datetime) -> RunRow | None:
    """The run of these hosts whose worker has been silent longest, locked."""
    query = (
        runs.columns()
        .where(Run.state.in_(ACTIVE), Run.lease_until < at, Run.on_host.in_(names))
        .order_by(Run.lease_until)
    )
    return _first(session, query)


def waiting(
    session: Session, offers: Sequence[Offer], at: datetime, *, but: Sequence[str] = ()
) -> RunRow | None:
    """The run that is next for any of some hosts, whether or not it fits now, locked.

    Args:
        session: a writing one.
        offers: the hosts.
        at: now; a run that pauses is left out.
        but: ids of runs to leave out.
    """
    query = (
        runs.columns()
        .where(Run.state == "queued", or_(Run.not_before.is_(None), Run.not_before <= at))
        .where(or_(*map(_fits, offers)), Run.id.not_in(but))
        .order_by(Run.priority.desc(), Run.seq)
    )
    return _first(session, query)


def _fits(offer: Offer) -> Any:
    """Where a run names its host, a driver that differs is what its owner wants to see."""
    fits = [or_(Run.host.is_(None), Run.host == offer.host), Run.gpus <= offer.slots]
    fits.append(or_(Run.gpu.is_(None), Run.gpu == offer.gpu) if offer.gpu else Run.gpu.is_(None))
    if not offer.spans:
        fits.append(Run.nodes == 1)
    if offer.driver_key is not None:
        same = or_(Run.driver_key.is_(None), Run.driver_key == offer.driver_key)
        fits.append(or_(same, Run.host == offer.host))
    return and_(*fits)


def fits(run: RunRow, offer: Offer) -> bool:
    """Whether a host could take a run when all its slots are free; as `waiting` decides."""
    if run.host not in (None, offer.host) or run.gpus > offer.slots:
        return False
    if run.gpu not in (None, offer.gpu) or (run.nodes > 1 and not offer.spans):
        return False
    return run.host is not None or has_driver(run, offer)


def has_driver(run: RunRow, offer: Offer) -> bool:
    """Whether a host has the driver that a run should have, as far as either is known."""
    mine = driver_key(run.driver)
    return None in (mine, offer.driver_key) or mine == offer.driver_key


def driver_key(driver: str | None) -> str | None:
    """A driver's numbers: ``550.54.15`` and ``550.054.15`` are the same."""
    if driver is None:
        return None
    try:
        return ".".join(map(str, parse_version("driver", driver).key[0]))
    except BadInput:
        return driver


def _first(session: Session, query: Any) -> RunRow | None:
    found = session.execute(query.limit(1).with_for_update(skip_locked=True)).first()
    return runs.row(found) if found else None


def has_any(session: Session, names: Sequence[str], at: datetime) -> bool:
    """Whether there is anything to look for: a cheap question before the lock is asked for."""
    due = and_(Run.state == "queued", or_(Run.not_before.is_(None), Run.not_before <= at))
    silent = and_(Run.state.in_(ACTIVE), Run.lease_until < at, Run.on_host.in_(names))
    return any(
        session.execute(select(Run.seq).where(each).limit(1)).first() for each in (due, silent)
    )


def give(
    session: Session, run: RunRow, worker: str, host: str, *, at: datetime, until: datetime
) -> int:
    """Make a run a worker's; the number of the attempt that this begins."""
    attempt = run.attempts + 1
    values = {
        "state": "leased",
        "attempts": attempt,
        "worker": worker,
        "on_host": host,
        "lease_until": until,
        "not_before": None,
        "doing": "",
        "progress": None,
        "reason": "",
        "started_at": run.started_at or at,
    }
    session.execute(update(Run).where(Run.id == run.id).values(**values))
    return attempt


def hold(session: Session, held: Held) -> RunRow | None:
    """The run, locked, if the worker still has it; None: it has not."""
    found = session.execute(runs.columns().where(*_mine(held)).with_for_update()).first()
    return runs.row(found) if found else None


def change(session: Session, held: Held, **values: Any) -> bool:
    """Set columns of a run, if the worker still has it; whether it has."""
    changed = session.execute(update(Run).where(*_mine(held)).values(**values))
    return bool(changed.rowcount)  # type: ignore[attr-defined]


def _mine(held: Held) -> Sequence[Any]:
    return (
        Run.id == held.run,
        Run.attempts == held.attempt,
        Run.worker == held.worker,
        Run.state.in_(ACTIVE),
    )


def end(session: Session, run_id: str, state: str, reason: str, at: datetime) -> None:
    """End a run, whoever has it, and free its slots."""
    values = {
        "state": state,
        "reason": reason,
        "doing": "",
        "lease_until": None,
        "finished_at": at,
    }
    session.execute(update(Run).where(Run.id == run_id).values(**values))
    hosts.free(session, run_id)


def requeue(session: Session, run_id: str, reason: str, not_before: datetime) -> None:
    """Queue a run again after a pause, and free its slots."""
    values = {
        "state": "queued",
        "reason": reason,
        "doing": "",
        "progress": None,
        "lease_until": None,
        "not_before": not_before,
    }
    session.execute(update(Run).where(Run.id == run_id).values(**values))
    hosts.free(session, run_id)


def ask_to_cancel(session: Session, run_id: str, by: str) -> None:
    """Note that a run is to end; its worker learns of it with the next heartbeat."""
    session.execute(update(Run).where(Run.id == run_id).values(cancel_by=by))
