"""Store staging hosts, the slots that runs take, and which worker has which run.

Every change of a lease names the worker's attempt, so that outdated workers change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct
from sqlalchemy import ColumnElement, and_, delete, func, insert, or_, select, update
from sqlalchemy.orm import Session

from compatgate.canary.engine import Lease
from compatgate.canary.run import ACTIVE
from compatgate.canary.workloads import Library
from compatgate.errors import NotFound
from compatgate.kit.database.tables import Page, page
from compatgate.service.runs.queue import repository as runs
from compatgate.service.runs.queue.models import Host, HostRow, Run, RunRow, Slot
from compatgate.service.runs.queue.schemas import HostFilters

_DECLARED = ("worker", "executor", "gpu", "driver", "slots", "health", "quiet", "suites")


def register_hosts(session: Session, declared: Sequence[dict[str, Any]], at: datetime) -> None:
    """Store hosts as declared, by name and what `HostRow` has, as seen now."""
    for host in declared:
        values = {**host, "seen_at": at}
        changed = update(Host).where(Host.name == host["name"]).values(**values)
        if session.execute(changed).rowcount == 0:  # type: ignore[attr-defined]
            session.execute(insert(Host), [{**values, "registered_at": at}])


def mark_host(session: Session, name: str, why: str | None, since: datetime | None) -> None:
    """Store why and since when a host does not answer; None: it answers."""
    changed = update(Host).where(Host.name == name)
    session.execute(changed.values(away_since=since, away_why=why))


def are_current(
    session: Session, declared: Sequence[dict[str, Any]], at: datetime, within: timedelta
) -> bool:
    """Return whether all hosts are stored as declared, and were seen a moment ago."""
    known = {host.name: host for host in load_hosts(session, [host["name"] for host in declared])}
    return all(
        (stored := known.get(host["name"])) is not None
        and at - stored.seen_at < within
        and all(msgspec.to_builtins(getattr(stored, name)) == host[name] for name in _DECLARED)
        for host in declared
    )


def load_hosts(session: Session, names: Collection[str] | None = None) -> list[HostRow]:
    """Return hosts by name; None: all."""
    query = _query()
    query = query.where(Host.name.in_(names)) if names is not None else query
    return [_row(result) for result in session.execute(query.order_by(Host.name))]


def find_host(session: Session, name: str) -> HostRow:
    """Return a host."""
    for host in load_hosts(session, [name]):
        return host
    raise NotFound(f"no worker has registered the host {name!r}", field="name", value=name)


def list_hosts(session: Session, /, **filters: Any) -> Page[HostRow]:
    """Return hosts by name, by the filters of `HostFilters`."""
    query, asked = _query(), HostFilters(**filters)
    query = query.where(Host.gpu == asked.gpu) if asked.gpu else query
    return page(session, query, Host.name, _row, cursor=asked.cursor, limit=asked.limit)


def _query() -> Any:
    busy = select(func.count()).where(Slot.host == Host.name).scalar_subquery()
    fields = [name for name in HostRow.__struct_fields__ if name != "busy"]
    return select(*(getattr(Host, name) for name in fields), busy.label("busy"))


def _row(found: Any) -> HostRow:
    return msgspec.convert(dict(found._mapping), HostRow)


def find_unknown_suites(
    session: Session, names: Collection[str], catalogue: Callable[[], Library]
) -> dict[str, str]:
    """Return the suites, of some names, that no folder and no worker has, each with a hint."""
    if not names:
        return {}
    known = catalogue()
    stored = session.execute(select(Host.suites).distinct()).scalars()
    registered = {suite for suites in stored for suite in suites}
    return {
        name: known.suggest_suite(name, registered)
        for name in names
        if name not in known.suites and name not in registered
    }


def taken_slots(session: Session, names: Collection[str]) -> dict[str, set[int]]:
    """Return the occupied slots, by host."""
    results: dict[str, set[int]] = {name: set() for name in names}
    for host, slot in session.execute(select(Slot.host, Slot.slot).where(Slot.host.in_(names))):
        results[host].add(slot)
    return results


def slots_of(session: Session, run_id: str) -> tuple[int, ...]:
    """Return the slots of a run."""
    query = select(Slot.slot).where(Slot.run == run_id).order_by(Slot.slot)
    return tuple(session.execute(query).scalars())


def take_slots(session: Session, run_id: str, host: str, slots: Sequence[int]) -> None:
    """Give slots to a run; the table's key refuses one that is taken."""
    session.execute(insert(Slot), [{"host": host, "slot": slot, "run": run_id} for slot in slots])


class Offer(Struct, frozen=True):
    """A host that could take a run; without a SKU it has no GPUs.

    It ``spans`` if it runs a workload on several nodes at once. On an ``exclusive`` one, a run that
    measures takes every slot.
    """

    host: str
    gpu: str | None
    driver_key: str | None
    slots: int
    spans: bool = False
    exclusive: bool = False

    def count_needed(self, run: RunRow) -> int:
        """Return the slots that a run takes here."""
        return self.slots if self.exclusive and run.measures else run.gpus


def abandoned_run(session: Session, names: Sequence[str], at: datetime) -> RunRow | None:
    """Return, locked, the run of these hosts whose worker has been silent longest."""
    query = runs.select_runs().where(_is_silent(names, at)).order_by(Run.lease_until)
    return _first_row(session, query)


def _is_silent(names: Sequence[str], at: datetime) -> ColumnElement[bool]:
    return and_(Run.state.in_(ACTIVE), Run.lease_until < at, Run.on_host.in_(names))


def _is_due(at: datetime) -> ColumnElement[bool]:
    return and_(Run.state == "queued", or_(Run.not_before.is_(None), Run.not_before <= at))


def next_waiting_run(
    session: Session, offers: Sequence[Offer], at: datetime, *, but: Sequence[str] = ()
) -> RunRow | None:
    """Return, locked, the next run for any of some hosts, whether or not it fits now."""
    query = (
        runs.select_runs()
        .where(_is_due(at), or_(*map(_matches_offer, offers)), Run.id.not_in(but))
        .order_by(Run.priority.desc(), Run.seq)
    )
    return _first_row(session, query)


def _matches_offer(offer: Offer) -> Any:
    """Return the conditions of a host; a run that names its host accepts any driver."""
    fits = [or_(Run.host.is_(None), Run.host == offer.host), Run.gpus <= offer.slots]
    fits.append(or_(Run.gpu.is_(None), Run.gpu == offer.gpu) if offer.gpu else Run.gpu.is_(None))
    if not offer.spans:
        fits.append(Run.nodes == 1)
    if offer.driver_key is not None:
        same = or_(Run.driver_key.is_(None), Run.driver_key == offer.driver_key)
        fits.append(or_(same, Run.host == offer.host))
    return and_(*fits)


def could_take(run: RunRow, offer: Offer) -> bool:
    """Return whether a host could take a run with all slots free, as `waiting` decides."""
    if run.host not in (None, offer.host) or run.gpus > offer.slots:
        return False
    if run.gpu not in (None, offer.gpu) or (run.nodes > 1 and not offer.spans):
        return False
    known = {runs.driver_key(run.driver), offer.driver_key}
    return run.host is not None or None in known or len(known) == 1


def _first_row(session: Session, query: Any) -> RunRow | None:
    result = session.execute(query.limit(1).with_for_update(skip_locked=True)).first()
    return runs.to_row(result) if result else None


def has_work(session: Session, names: Sequence[str], at: datetime) -> bool:
    """Return whether any run waits or may be abandoned; cheap, to call before locking."""
    return any(
        session.execute(select(Run.seq).where(each).limit(1)).first()
        for each in (_is_due(at), _is_silent(names, at))
    )


def set_run(session: Session, run_id: str, **values: Any) -> None:
    """Set columns of a run, whoever has it."""
    session.execute(update(Run).where(Run.id == run_id).values(**values))


def lock_run(session: Session, held: Lease) -> RunRow | None:
    """Return the run, locked; None: the worker has lost it."""
    result = session.execute(runs.select_runs().where(*_held_by(held)).with_for_update()).first()
    return runs.to_row(result) if result else None


def update_run(session: Session, held: Lease, **values: Any) -> bool:
    """Set columns of a run; return False if the worker has lost it."""
    changed = session.execute(update(Run).where(*_held_by(held)).values(**values))
    return bool(changed.rowcount)  # type: ignore[attr-defined]


def _held_by(held: Lease) -> Sequence[Any]:
    return (
        Run.id == held.run.id,
        Run.attempts == held.attempt,
        Run.worker == held.worker,
        Run.state.in_(ACTIVE),
    )


def end_run(session: Session, run_id: str, state: str, reason: str, at: datetime) -> None:
    """End a run in any state, and free its slots."""
    ended = {"doing": "", "left_s": None, "lease_until": None, "finished_at": at}
    set_run(session, run_id, state=state, reason=reason, **ended)
    session.execute(delete(Slot).where(Slot.run == run_id))


def requeue_run(session: Session, run_id: str, reason: str, not_before: datetime) -> None:
    """Queue a run again after a pause, and free its slots."""
    waiting = {"doing": "", "progress": None, "lease_until": None, "not_before": not_before}
    set_run(session, run_id, state="queued", reason=reason, **waiting)
    session.execute(delete(Slot).where(Slot.run == run_id))
