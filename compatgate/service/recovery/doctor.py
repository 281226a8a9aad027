"""Examine an installation: database, facts, tokens, keys, staging hosts and a running server.

Each check says in one line what it found and what to do. Nothing is changed; the one thing that is
written, a rehearsed decision, is undone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from msgspec import Struct
from sqlalchemy import select, text
from sqlalchemy.orm import Session

from compatgate import version
from compatgate.documents.quantities import describe_seconds
from compatgate.errors import CompatgateError
from compatgate.kit import clock
from compatgate.kit.clock import from_iso
from compatgate.kit.database.database import Database, display_url, resolve_url
from compatgate.kit.database.opening import STATE_VARIABLE, state_folder
from compatgate.service.audit import chain as audit
from compatgate.service.audit.chain import AuditRecord
from compatgate.service.recovery.checks import (
    Check,
    check_certificate,
    check_files,
    check_hosts,
    check_registry,
    check_server,
    check_state,
    guarded,
)
from compatgate.service.recovery.verify import check_pages, check_schema

EXTRAS = {
    "postgresql": "psycopg",
    "kubernetes": "kubernetes",
    "nvml": "pynvml",
    "ssh": "paramiko",
    "sbom": "cyclonedx",
    "signing": "securesystemslib",
    "squashfs": "dissect",
}
"""Extras of the package, and a module of each."""
_SKEW = timedelta(seconds=5)
_SOON = timedelta(days=14)
_LINKS = 1000
_LISTED = 5


class Subjects(Struct, frozen=True):
    """The parts to examine; fact files and folder are those of the environment where None."""

    database: str | None = None
    overlays: Sequence[str] | None = None
    state: str | None = None
    server: str | None = None
    token: str | None = None
    certificate: str | None = None
    registries: tuple[str, ...] = ()
    hosts: str | None = None
    signing_key: str | None = None


def examine(subjects: Subjects) -> Iterator[Check]:
    """Yield every check, in the order in which to mend what fails."""
    python = ".".join(map(str, sys.version_info[:3]))
    installed = [name for name, module in EXTRAS.items() if find_spec(module) is not None]
    extras = f"extras {', '.join(installed)}" if installed else "no extras"
    yield Check("program", "ok", f"compatgate {version()}, Python {python}, {extras}")
    yield from guarded("database", lambda: _examine_database(subjects))
    yield from guarded("facts", lambda: _check_facts(subjects.overlays))
    yield from guarded("state folder", lambda: _examine_state(subjects))
    if subjects.signing_key:
        yield from guarded("signing key", partial(_check_signing_key, subjects.signing_key))
    if subjects.certificate:
        yield from guarded("certificate", partial(check_certificate, subjects.certificate))
    for host in subjects.registries:
        yield from guarded("registry", partial(check_registry, host))
    if subjects.hosts:
        yield from guarded("staging hosts", partial(check_hosts, subjects.hosts))
    if subjects.server:
        yield from check_server(subjects.server, subjects.token)


def _examine_state(subjects: Subjects) -> Iterator[Check]:
    """Check the state folder that is named, or that serve would use if it exists."""
    url = resolve_url(subjects.database)
    folder = state_folder(url, subjects.state)
    if subjects.state or os.environ.get(STATE_VARIABLE) or folder.exists():
        yield from check_state(folder, display_url(url))


def _examine_database(subjects: Subjects) -> Iterator[Check]:
    from compatgate.kit.database.opening import refuse_missing

    refuse_missing(subjects.database)
    url = resolve_url(subjects.database)
    if url.drivername == "sqlite":
        yield from guarded("files", lambda: check_files(Path(str(url.database))))
    database = Database.open(subjects.database)
    try:
        with database.reading() as session:
            yield Check("database", "ok", f"{database.shown}, {_describe(database, session)}")
        schema = list(guarded("schema", lambda: check_schema(database)))
        yield from schema
        yield from guarded("pages", lambda: check_pages(database, thorough=False))
        if any(check.state == "fail" for check in schema):
            return
        for name, check in (
            ("recording", partial(_check_recording, database)),
            ("audit chain", partial(_check_last_links, database)),
            ("clock", partial(_check_clock, database)),
            ("tokens", partial(_check_tokens, database)),
            ("matrix", partial(_check_matrix, database, subjects.overlays)),
            ("suites", partial(_check_suites, database)),
        ):
            yield from guarded(name, check)
    finally:
        database.close()


def _describe(database: Database, session: Session) -> str:
    execute = session.execute
    if database.is_sqlite:
        return f"SQLite {execute(text('SELECT sqlite_version()')).scalar()}"
    version = str(execute(text("SHOW server_version")).scalar()).split()[0]
    size = execute(text("SELECT pg_database_size(current_database())")).scalar_one()
    return f"PostgreSQL {version}, {size / 2**20:.0f} MiB"


def _check_recording(database: Database) -> Check:
    """Store a decision and undo it: finds full disks, locks, missing rights and read-only files."""
    from compatgate.service.gate.decisions.decision_log import DecisionLog

    log = DecisionLog(database)
    try:
        log.rehearse()
    finally:
        log.close()
    return Check("recording", "ok", "a decision can be recorded")


def _check_last_links(database: Database) -> Check:
    """Compare the newest links with their hashes; ``db verify`` compares all."""
    with database.reading() as session:
        query = select(AuditRecord.__table__).order_by(AuditRecord.seq.desc()).limit(_LINKS)
        links = [dict(row._mapping) for row in session.execute(query)]
    for newer, older in zip(links, [*links[1:], None], strict=True):
        link = newer["seq"], newer["previous"]
        follows = older is None or link == (older["seq"] + 1, older["hash"])
        if audit.hash_of(newer) != newer["hash"] or not follows:
            what = f"link {newer['seq']} was changed, or the link before is missing"
            fix = "run compatgate db verify, and compare with a backup"
            return Check("audit chain", "fail", what, fix)
    known = links[0]["hash"] if links else "none"
    return Check("audit chain", "ok", f"the last {len(links)} links are intact; head {known}")


def _check_clock(database: Database) -> Check:
    now = clock.now()
    with database.reading() as session:
        last = select(AuditRecord.at).order_by(AuditRecord.seq.desc()).limit(1)
        noted, stated = session.execute(last).scalar(), None
        if not database.is_sqlite:
            stated = session.execute(text("SELECT clock_timestamp()")).scalar()
    fix = "synchronize the clocks of all machines (NTP)"
    if noted and from_iso(noted) > now + _SKEW:
        behind = describe_seconds((from_iso(noted) - now).total_seconds())
        what = f"this clock is {behind} behind the last audit record, of {noted}"
        return Check("clock", "fail", what, fix)
    if isinstance(stated, datetime) and abs(stated - now) > _SKEW:
        difference = describe_seconds(abs(stated - now).total_seconds())
        what = f"this clock differs from PostgreSQL's by {difference}"
        return Check("clock", "warn", what, fix)
    against = "the last audit record" if stated is None else "PostgreSQL and the audit log"
    return Check("clock", "ok", f"{clock.iso(now)[:19]}Z agrees with {against}")


def _check_tokens(database: Database) -> Check:
    from compatgate.service.access import token_table as tokens

    with database.reading() as session:
        active = tokens.active_tokens(session)
    if not any("admin" in token.scopes for token in active):
        fix = "compatgate token create --name admin --scope admin"
        return Check("tokens", "warn", f"{len(active)} active, none has the scope admin", fix)
    now = clock.now()
    soon = [t for t in active if t.expires_at is not None and t.expires_at < now + _SOON]
    if soon:
        names = ", ".join(f"{t.name} on {t.expires_at:%Y-%m-%d}" for t in soon[:5])
        more = f" and {len(soon) - 5} more" if len(soon) > 5 else ""
        return Check("tokens", "warn", f"expire soon: {names}{more}", "create their successors")
    return Check("tokens", "ok", f"{len(active)} active, none expires within {_SOON.days} days")


def _check_matrix(database: Database, overlays: Sequence[str] | None) -> Iterator[Check]:
    from compatgate.catalog import load_facts
    from compatgate.service.matrix.snapshots.reader import Snapshots
    from compatgate.service.runs.evidence.evidence import StoredEvidence

    try:
        facts = load_facts(overlays)
    except CompatgateError:  # the check of the facts says why
        yield Check("matrix", "skip", "needs usable facts")
        return
    snapshot = Snapshots(database, facts, StoredEvidence()).current()
    if snapshot.unusable:
        name, why = next(iter(snapshot.unusable.items()))
        what = f"{len(snapshot.unusable)} targets cannot be used, like {name}: {why}"
        yield Check("matrix", "fail", what, "change the target, or the facts that it needs")
        return
    if not snapshot.targets:
        what = f"revision {snapshot.revision} has no target"
        yield Check("matrix", "warn", what, "import one: compatgate matrix import FILE")
        return
    count = f"{len(snapshot.targets)} targets, {len(snapshot.entries)} entries"
    yield Check("matrix", "ok", f"revision {snapshot.revision}, {count}")
    exact = {  # they name a post-release, or a build that is not one for a CUDA
        entry.name
        for entry in snapshot.entries.values()
        for constraint in entry.components.values()
        for version in (clause.version for clause in constraint.clauses)
        if version.whole or (version.local and version.cuda is None)
    }
    if exact:
        listed = ", ".join(sorted(exact)[:_LISTED]) + (", ..." if len(exact) > _LISTED else "")
        what = f"entries that match one build or post-release alone: {listed}"
        yield Check("versions", "ok", what)


def _check_suites(database: Database) -> Iterator[Check]:
    """Name the suites of policies that nothing can run: their targets deny for lack of evidence."""
    from compatgate.canary.workloads import Library
    from compatgate.documents.specs import suite_refs
    from compatgate.service.matrix.documents import repository as documents
    from compatgate.service.runs.queue import leases

    with database.reading() as session:
        named = {
            (name, target.metadata.name)
            for target, _ in documents.load_documents(session, "Target")
            for _, name in suite_refs(target)
        }
        unknown = leases.find_unknown_suites(session, {name for name, _ in named}, Library.open)
    fix = "correct the policy, or register a worker that has the suite"
    for name, target in sorted(named):
        if name in unknown:
            what = f"target {target} names the suite {name!r}, which nothing can run"
            yield Check("suites", "warn", f"{what} ({unknown[name]})", fix)
    if not unknown:
        count = len({name for name, _ in named})
        yield Check("suites", "ok", f"policies name {count} suites, all known")


def _check_facts(overlays: Sequence[str] | None) -> Check:
    from compatgate.catalog import load_facts, open_library

    library = open_library(overlays)
    library.check_overlays()
    facts = load_facts(overlays)
    names = ", ".join(overlay.label for overlay in library.overlays) or "no overlays"
    return Check("facts", "ok", f"{facts.digest[:19]}, {names}")


def _check_signing_key(uri: str) -> Check:
    from compatgate.service.audit.keys import signer_maker

    _, public = signer_maker(uri)
    return Check("signing key", "ok", f"{public.scheme}, key id {public.keyid}")
