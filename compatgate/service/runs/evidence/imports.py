"""Store reports of other tools as runs that have ended, each with its source.

An imported result is evidence of the suite ``FORMAT@SOURCE``, where the source is the token that
imported it. It counts for a suite of a target only where the target's policy names it under
``canary.imported``. It blesses and revokes no entry.
"""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy.orm import Session

from compatgate.canary.imports import ImportFormat, Observation, read_observations
from compatgate.canary.run import Attribution, Origin, StepResult
from compatgate.core.facts import Facts
from compatgate.core.gpus import resolve_gpu
from compatgate.core.matrix import Evidence
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
        form, found = read_observations(asked.content, asked.format)
    except BadInput as error:
        error.problem = f"{asked.file}: {error.problem}"
        raise
    if asked.pool is not None and asked.target is None:
        raise BadInput("a pool needs a target", field="pool", hint="name the target")
    pools = find_pools(asked.target, asked.pool, snapshot) if asked.target else []
    pool_of = {pool.name: pool.gpu.sku for pool in pools if pool.gpu}
    made = []
    for number, observation in enumerate(found):
        settled = _Import(asked, observation, facts, pool_of, at)
        made.append(settled.store(session, form, number, by))
    return tuple(made)


class _Import:
    """A measurement of a report; ``stated`` names the values that the importer added."""

    def __init__(
        self,
        asked: ImportRequest,
        found: Observation,
        facts: Facts,
        pool_of: dict[str, str],
        at: datetime,
    ) -> None:
        self._asked, self._found, self._facts, self._at = asked, found, facts, at
        self.stated: list[str] = []
        self.sku = self._settle_sku({*pool_of.values()})
        fitting = [name for name, sku in pool_of.items() if sku == self.sku]
        pool = fitting[0] if len(fitting) == 1 else asked.pool
        self.place = {"target": asked.target, "pool": pool}
        self.driver = self._settle_driver()
        self.components = self._settle_components()
        self.host = found.host or asked.host
        if self.host and self.host != found.host:
            self.stated.append("host")
        if found.host and asked.host and found.host != asked.host:
            raise self._differs("host", asked.host, found.host)
        self.measured_at = self._settle_time()

    def _error(self, problem: str, field: str, *, value: object = None, hint: str = "") -> BadInput:
        return BadInput(f"{self._asked.file}: {problem}", field=field, value=value, hint=hint)

    def _differs(self, field: str, stated: str, reported: str) -> BadInput:
        what = f"the report says {reported}"
        return self._error(what, field, value=stated, hint="omit or correct the value")

    def _settle_sku(self, skus: set[str]) -> str:
        found, asked = self._found, self._asked
        reported = self._read_product(found.gpu, "gpu") if found.gpu else None
        named = self._read_product(asked.sku, "sku") if asked.sku else None
        if reported and named and reported != named:
            raise self._differs("sku", named, reported)
        sku = reported or named or (next(iter(skus)) if len(skus) == 1 else None)
        known = ", ".join(sorted(skus))
        if sku is None:
            hint = f"one of the target: {known}" if skus else "like A100-SXM4-80GB"
            raise self._error("the report names no GPU product", "sku", hint=hint)
        if reported is None:
            self.stated.append("sku")
        if asked.target is not None and sku not in skus:
            what = f"no pool of the target {asked.target} has this GPU"
            raise self._error(what, "sku", value=sku, hint=known)
        return sku

    def _read_product(self, name: str, field: str) -> str:
        try:
            gpu = resolve_gpu(name, self._facts.gpus)
        except BadInput as error:
            error.field = field
            raise
        if not gpu.product:
            hint = "like A100-SXM4-80GB: evidence is about a product"
            raise BadInput(f"{name} is not a product", field=field, value=name, hint=hint)
        return gpu.sku

    def _settle_driver(self) -> str:
        named, reported = self._asked.driver, self._found.driver
        if named is not None:
            try:
                parse_version("driver", named)
            except BadInput as error:
                error.field = "driver"
                raise
        if reported is None:
            if named is None:
                hint = "the driver of the measured hosts, like 535.183.01"
                raise self._error("the report names no driver", "driver", hint=hint)
            self.stated.append("driver")
            return named
        if named and parse_version("driver", named) != parse_version("driver", reported):
            raise self._differs("driver", named, reported)
        return reported

    def _settle_components(self) -> dict[str, str]:
        """Return the measured versions, with those that the importer stated."""
        try:
            named = parse_stack(self._asked.stack).components if self._asked.stack else {}
        except BadInput as error:
            raise error.at("stack") from None
        merged = dict(self._found.versions)
        for name, version in named.items():
            if name not in merged:
                merged[name] = version.text
                self.stated.append(f"stack.{name}")
            elif not same_release(name, parse_version(name, merged[name]), version):
                raise self._differs(f"stack.{name}", version.text, merged[name])
        return merged

    def _settle_time(self) -> datetime:
        when = self._found.finished or self._asked.measured_at
        if when is None:
            hint = "when the measurement ended, like 2026-11-03T09:30:00Z"
            what = "the report does not say when it was measured"
            raise self._error(what, "measured_at", hint=hint)
        if self._found.finished is None:
            self.stated.append("measured_at")
        if when > self._at + _AHEAD:
            what, value = "the measurement is in the future", when.isoformat()
            raise self._error(what, "measured_at", value=value)
        return when

    def store(self, session: Session, form: ImportFormat, number: int, by: str) -> str:
        """Store the measurement as a run that has ended; return its id."""
        asked, found, at = self._asked, self._found, self._at
        about = Attribution(
            format=form,
            source=asked.source,
            tool=found.tool,
            file=asked.file,
            sha256=hashlib.sha256(asked.content.encode()).hexdigest(),
            by=by,
            measured_at=self.measured_at,
            imported_at=at,
            trust="stated" if {"sku", "driver"} & set(self.stated) else "reported",
            stated=tuple(self.stated),
        )
        run_id, former = self._identify(about, number), self._identify(about, number, about.source)
        for known in runs.find_runs(session, [run_id, former]).values():
            source = known.suite.partition("@")[2]
            what = f"{asked.file}: already imported as {known.id} from {source}"
            raise Conflict(what, field="file", value=known.id)
        row = self._make_run(run_id, about)
        runs.add_runs(session, [row])
        for part in found.parts:
            result = StepResult(
                name=part.name,
                workload=form,
                seed=0,
                outcome=part.outcome,
                reason=part.reason,
                report=msgspec.to_builtins(part.report),
                finished_at=self.measured_at,
                origin=Origin(f"sha256:{about.sha256}", self.sku, EXECUTOR, development=False),
                imported=about,
            )
            step = StepRow(1, part.name, self.host or "", msgspec.to_builtins(result))
            runs.record_step(session, run_id, step)
        detail: dict[str, Any] = {
            "source": row.suite,
            "file": asked.file,
            "sha256_file": about.sha256,
            "trust": about.trust,
            "outcome": row.state,
        }
        if found.outcome != "inconclusive":
            measured = Evidence.read(
                id=run_id,
                suite=row.suite,
                sku=self.sku,
                driver=self.driver,
                components=self.components,
                outcome=found.outcome,
                finished=int(self.measured_at.timestamp()),
            )
            stored = store.add_evidence(session, measured, at)
            detail |= {"evidence": stored.seq, "sha256": store.fingerprint(stored)}
        note_run(session, at, by, "imported", run_id, detail)
        return run_id

    def _identify(self, about: Attribution, number: int, *source: str) -> str:
        """Return the id of a report with its statements, whoever imports it under any name.

        The source was a part of it before 0.2.
        """
        key = (about.format, *source, about.sha256, str(number), self.sku, self.driver)
        more = (*sorted(f"{k}={v}" for k, v in self.components.items()), self.host or "")
        text = "\0".join((*key, about.measured_at.isoformat(), *more))
        return f"run_{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    def _make_run(self, run_id: str, about: Attribution) -> RunRow:
        found = self._found
        return new_run(
            id=run_id,
            suite=f"{about.format}@{about.source}",
            state=found.outcome,
            stack=self.components,
            **self.place,
            gpu=self.sku,
            driver=self.driver,
            gpus=found.gpus,
            nodes=found.nodes,
            purpose="import",
            attempts=1,
            max_attempts=1,
            reason=f"{found.reason}; {found.tool}, imported from {about.source}",
            asked_by=about.by,
            on_host=self.host,
            created_at=about.imported_at,
            finished_at=about.measured_at,
        )
