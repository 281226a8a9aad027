"""What may be forgotten of canary runs and staging hosts, and forgetting it.

A run's row is kept for ever. Its log may go once it has ended; a note of that stays in its place.
The reports of its steps may go where nothing rests on the run: no evidence, no warning, no
baseline; the newest of each host stays, since drift is read off it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import delete, func, insert, or_, select, update
from sqlalchemy.orm import Session

from compatgate.store.models import (
    Baseline,
    EntryWarning,
    EvidenceRecord,
    Host,
    Run,
    RunOutput,
    RunStep,
    Slot,
)
from compatgate.store.run_rows import ACTIVE, PrunedLog
from compatgate.store.runs import NO_STEP

PRUNED = "pruned_at"
"""Member of a step's result whose reports were removed: when."""
_REPORTS = ("report", "judgement", "health")
_encode = msgspec.json.Encoder(order="deterministic").encode


def logs_before(session: Session, before: datetime) -> dict[str, int]:
    """Bytes of log by run, of runs that ended earlier; oldest first."""
    size = func.sum(func.length(RunOutput.data))
    query = select(Run.id, size).join(RunOutput, RunOutput.run == Run.id)
    query = query.where(*_ended(before), RunOutput.step != NO_STEP)
    query = query.group_by(Run.seq, Run.id).order_by(Run.seq)
    return {run: int(size or 0) for run, size in session.execute(query)}


def drop_logs(session: Session, runs: Sequence[str], pruned: PrunedLog) -> None:
    """Remove the logs of some runs that have ended; `compatgate.store.runs.pruned_log` tells."""
    session.execute(delete(RunOutput).where(RunOutput.run.in_(runs)))
    note = {"attempt": 0, "step": NO_STEP, "at": pruned.at, "data": _encode(pruned)}
    session.execute(insert(RunOutput), [{**note, "run": run} for run in runs])


def reports_before(session: Session, before: datetime) -> dict[str, int]:
    """Bytes of steps' results by run, of runs that ended earlier and nothing rests on."""
    ended = Run.state.not_in(("queued", *ACTIVE))
    newest = select(func.max(Run.seq)).where(ended, Run.on_host.is_not(None)).group_by(Run.on_host)
    closed = select(EntryWarning.closed_by).where(EntryWarning.closed_by.is_not(None))
    size = func.sum(func.length(RunStep.body))
    query = select(Run.id, size).join(RunStep, RunStep.run == Run.id)
    query = query.where(
        *_ended(before),
        Run.seq.not_in(newest),
        Run.id.not_in(select(EvidenceRecord.run)),
        Run.id.not_in(select(EntryWarning.run)),
        Run.id.not_in(closed),
        RunStep.body.not_like(f'%"{PRUNED}":%'),
    )
    learnt = _learnt_from(session)
    found = session.execute(query.group_by(Run.seq, Run.id).order_by(Run.seq))
    return {run: int(size or 0) for run, size in found if run not in learnt}


def _learnt_from(session: Session) -> set[str]:
    """Runs that any version of a baseline was offered."""
    found: set[str] = set()
    for body in session.execute(select(Baseline.body)).scalars():
        known = msgspec.json.decode(body)
        found.update(
            str(each["run"]).partition(":")[0]
            for name in ("runs", "discarded")
            for each in known.get(name, ())
        )
    return found


def drop_reports(session: Session, runs: Sequence[str], at: datetime) -> int:
    """Remove what the steps of some runs printed and what was judged of it; bytes saved.

    Outcomes, reasons, exit statuses and images stay.
    """
    key = (RunStep.run, RunStep.attempt, RunStep.name)
    saved = 0
    query = select(*key, RunStep.body).where(RunStep.run.in_(runs))
    for run, attempt, name, body in session.execute(query).all():
        result: dict[str, Any] = msgspec.json.decode(body)
        if PRUNED in result:
            continue
        result |= {part: None for part in _REPORTS if part in result}
        text = _encode({**result, PRUNED: at}).decode()
        saved += len(body.encode()) - len(text.encode())
        mine = (RunStep.run == run, RunStep.attempt == attempt, RunStep.name == name)
        session.execute(update(RunStep).where(*mine).values(body=text))
    return max(saved, 0)


def hosts_before(session: Session, before: datetime) -> dict[str, datetime]:
    """Hosts that no worker served since, and when one last did.

    Those that a run has, or that a run which waits names, are left out.
    """
    waited = select(Run.host).where(
        Run.host.is_not(None), or_(Run.state == "queued", Run.state.in_(ACTIVE))
    )
    query = select(Host.name, Host.seen_at).where(
        Host.seen_at < before,
        Host.name.not_in(select(Slot.host)),
        Host.name.not_in(waited),
    )
    return {found.name: found.seen_at for found in session.execute(query.order_by(Host.name))}


def drop_hosts(session: Session, names: Sequence[str]) -> None:
    """Forget hosts; a worker that serves one again makes it known again."""
    session.execute(delete(Host).where(Host.name.in_(names)))


def _ended(before: datetime) -> tuple[Any, ...]:
    return (Run.state.not_in(("queued", *ACTIVE)), Run.finished_at < before)
