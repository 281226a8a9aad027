"""Store reports of other tools as runs that have ended, each with its source.

An imported result is evidence of the suite ``FORMAT@SOURCE``, where the source is the token that
imported it. It counts for a suite of a target only where the target's policy names it under
``canary.imported``. It blesses and revokes no entry.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct
from sqlalchemy.orm import Session

from compatgate.canary.imports import ImportFormat, Observation, read_observations
from compatgate.canary.run import Attribution, Origin, StepResult
from compatgate.core.facts import Facts
from compatgate.core.gpus import resolve_gpu
from compatgate.core.matrix import Evidence
from compatgate.core.request import Pool
from compatgate.core.stack import parse_stack
from compatgate.core.versions import parse_version, same_release
from compatgate.errors import BadInput, Conflict
from compatgate.kit.principal import AccessRefused, Principal
from compatgate.service.matrix.snapshots.snapshot import Snapshot
from compatgate.service.runs.evidence import evidence as store
from compatgate.service.runs.queue import repository as runs
from compatgate.service.runs.queue.models import RunRow, StepRow, new_run
from compatgate.service.runs.queue.queue import note_run
from compatgate.service.runs.queue.schemas import ImportRequest
from compatgate.service.runs.queue.submission import find_pools

EXECUTOR = "import"
_AHEAD = timedelta(minutes=5)
"""Maximum lead of a measurement's time, for clocks that differ."""


def require_source(caller: Principal, source: str) -> None:
    """Require that a report is imported by its source: a name that somebody typed proves nothing.

    Names of people and jobs are not unique, those of tokens are. Whoever can open the database
    could write the result there as well.
    """
    if caller.kind == "local" or (caller.kind == "token" and caller.name == source):
        return
    raise AccessRefused(
        f"{caller.name} is not the source {source}: import with the token of the source",
        principal=caller,
        field="source",
        value=source,
        hint=f"compatgate token create --name {source} --scope operate",
    )


def import_report(
    session: Session,
    asked: ImportRequest,
    snapshot: Snapshot,
    facts: Facts,
    *,
    by: str,
    at: datetime,
) -> tuple[str, ...]:
    """Store what a report says, in a writing session, and return the ids of its runs."""
    try:
        form, result = read_observations(asked.content, asked.format)
    except BadInput as error:
        error.problem = f"{asked.file}: {error.problem}"
        raise
    if asked.pool is not None and asked.target is None:
        raise BadInput("a pool needs a target", field="pool", hint="name the target")
    pools = find_pools(asked.target, asked.pool, snapshot) if asked.target else []
    made = []
    for number, observation in enumerate(result):
        settled = _settle(asked, form, observation, pools, facts, by=by, at=at)
        made.append(_store(session, asked, settled, number, by=by, at=at))
    return tuple(made)


class _Settled(Struct, frozen=True):
    """An observation with its source, and with what the importer stated."""

    observation: Observation
    attribution: Attribution
    sku: str
    driver: str
    components: dict[str, str]
    host: str | None
    pool: str | None


def _settle(
    asked: ImportRequest,
    form: ImportFormat,
    found: Observation,
    pools: Sequence[Pool],
    facts: Facts,
    *,
    by: str,
    at: datetime,
) -> _Settled:
    stated: list[str] = []
    sku, pool = _sku(asked, found, pools, facts, stated)
    driver = _driver(asked, found, stated)
    components = _components(asked, found, stated)
    host = found.host or asked.host
    if host and host != found.host:
        stated.append("host")
    if found.host and asked.host and found.host != asked.host:
        raise _differs(asked, "host", asked.host, found.host)
    attribution = Attribution(
        format=form,
        source=asked.source,
        tool=found.tool,
        file=asked.file,
        sha256=hashlib.sha256(asked.content.encode()).hexdigest(),
        by=by,
        measured_at=_moment(asked, found, at, stated),
        imported_at=at,
        trust="stated" if {"sku", "driver"} & set(stated) else "reported",
        stated=tuple(stated),
    )
    return _Settled(found, attribution, sku, driver, components, host, pool)


def _differs(asked: ImportRequest, field: str, stated: str, reported: str) -> BadInput:
    problem = f"{asked.file}: the report says {reported}"
    return BadInput(problem, field=field, value=stated, hint="omit or correct the value")


def _sku(
    asked: ImportRequest, found: Observation, pools: Sequence[Pool], facts: Facts, stated: list[str]
) -> tuple[str, str | None]:
    """Return the measured SKU and the pool that has it."""
    reported = _product(found.gpu, facts, "gpu") if found.gpu else None
    named = _product(asked.sku, facts, "sku") if asked.sku else None
    if reported and named and reported != named:
        raise _differs(asked, "sku", named, reported)
    skus = {pool.gpu.sku for pool in pools if pool.gpu}
    sku = reported or named or (next(iter(skus)) if len(skus) == 1 else None)
    if sku is None:
        hint = f"one of the target: {', '.join(sorted(skus))}" if skus else "like A100-SXM4-80GB"
        raise BadInput(f"{asked.file}: the report names no GPU product", field="sku", hint=hint)
    if reported is None:
        stated.append("sku")
    if pools and sku not in skus:
        raise BadInput(
            f"{asked.file}: no pool of the target {asked.target} has this GPU",
            field="sku",
            value=sku,
            hint=", ".join(sorted(skus)),
        )
    fitting = [pool.name for pool in pools if pool.gpu and pool.gpu.sku == sku]
    return sku, fitting[0] if len(fitting) == 1 else asked.pool


def _product(name: str, facts: Facts, field: str) -> str:
    try:
        gpu = resolve_gpu(name, facts.gpus)
    except BadInput as error:
        error.field = field
        raise
    if not gpu.product:
        hint = "like A100-SXM4-80GB: evidence is about a product"
        raise BadInput(f"{name} is not a product", field=field, value=name, hint=hint)
    return gpu.sku


def _driver(asked: ImportRequest, found: Observation, stated: list[str]) -> str:
    named = asked.driver
    if named is not None:
        try:
            parse_version("driver", named)
        except BadInput as error:
            error.field = "driver"
            raise
    if found.driver is None:
        if named is None:
            hint = "the driver of the measured hosts, like 535.183.01"
            problem = f"{asked.file}: the report names no driver"
            raise BadInput(problem, field="driver", hint=hint)
        stated.append("driver")
        return named
    if named and parse_version("driver", named) != parse_version("driver", found.driver):
        raise _differs(asked, "driver", named, found.driver)
    return found.driver


def _components(asked: ImportRequest, found: Observation, stated: list[str]) -> dict[str, str]:
    """Return the measured versions, with those that the importer stated."""
    try:
        named = parse_stack(asked.stack).components if asked.stack else {}
    except BadInput as error:
        raise error.at("stack") from None
    merged = dict(found.versions)
    for name, version in named.items():
        if name in merged:
            if not same_release(name, parse_version(name, merged[name]), version):
                raise _differs(asked, f"stack.{name}", version.text, merged[name])
            continue
        merged[name] = version.text
        stated.append(f"stack.{name}")
    return merged


def _moment(asked: ImportRequest, found: Observation, at: datetime, stated: list[str]) -> datetime:
    when = found.finished or asked.measured_at
    if when is None:
        hint = "when the measurement ended, like 2026-11-03T09:30:00Z"
        problem = f"{asked.file}: the report does not say when it was measured"
        raise BadInput(problem, field="measured_at", hint=hint)
    if found.finished is None:
        stated.append("measured_at")
    if when > at + _AHEAD:
        raise BadInput(
            f"{asked.file}: the measurement is in the future",
            field="measured_at",
            value=when.isoformat(),
        )
    return when


def _store(
    session: Session,
    asked: ImportRequest,
    settled: _Settled,
    number: int,
    *,
    by: str,
    at: datetime,
) -> str:
    about, match = settled.attribution, settled.observation
    run_id, former = _identify(settled, number), _identify(settled, number, about.source)
    for known in runs.find_runs(session, [run_id, former]).values():
        what = f"{asked.file}: already imported as {known.id} from {known.suite.partition('@')[2]}"
        raise Conflict(what, field="file", value=known.id)
    row = _row(run_id, asked, settled, by=by, at=at)
    runs.add_runs(session, [row])
    for part in match.parts:
        result = StepResult(
            name=part.name,
            workload=about.format,
            seed=0,
            outcome=part.outcome,
            reason=part.reason,
            report=msgspec.to_builtins(part.report),
            finished_at=about.measured_at,
            origin=Origin(f"sha256:{about.sha256}", settled.sku, EXECUTOR, development=False),
            imported=about,
        )
        step = StepRow(1, part.name, settled.host or "", msgspec.to_builtins(result))
        runs.record_step(session, run_id, step)
    detail: dict[str, Any] = {
        "source": row.suite,
        "file": asked.file,
        "sha256_file": about.sha256,
        "trust": about.trust,
        "outcome": row.state,
    }
    if match.outcome != "inconclusive":
        stored = store.add_evidence(session, _evidence(run_id, settled), at)
        detail |= {"evidence": stored.seq, "sha256": store.fingerprint(stored)}
    note_run(session, at, by, "imported", run_id, detail)
    return run_id


def _identify(settled: _Settled, number: int, *source: str) -> str:
    """Return the id of a report with its statements, whoever imports it under any name.

    Args:
        source: was part of the id before 0.2.
    """
    about = settled.attribution
    key = (about.format, *source, about.sha256, str(number), settled.sku, settled.driver)
    more = (*sorted(f"{k}={v}" for k, v in settled.components.items()), settled.host or "")
    text = "\0".join((*key, about.measured_at.isoformat(), *more))
    return f"run_{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _evidence(run_id: str, settled: _Settled) -> Evidence:
    about, result = settled.attribution, settled.observation
    return Evidence(
        run_id,
        f"{about.format}@{about.source}",
        settled.sku,
        parse_version("driver", settled.driver),
        {name: parse_version(name, text) for name, text in settled.components.items()},
        result.outcome,
        int(about.measured_at.timestamp()),
    )


def _row(run_id: str, asked: ImportRequest, settled: _Settled, *, by: str, at: datetime) -> RunRow:
    about, result = settled.attribution, settled.observation
    return new_run(
        id=run_id,
        suite=f"{about.format}@{about.source}",
        state=result.outcome,
        stack=settled.components,
        target=asked.target,
        pool=settled.pool,
        gpu=settled.sku,
        driver=settled.driver,
        gpus=result.gpus,
        nodes=result.nodes,
        purpose="import",
        attempts=1,
        max_attempts=1,
        reason=f"{result.reason}; {result.tool}, imported from {about.source}",
        asked_by=by,
        on_host=settled.host,
        created_at=at,
        finished_at=about.measured_at,
    )
