"""Prepare the service before it forks: facts, database, first matrix, first token."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from compatgate.canary.allowed_images import EVERY_IMAGE, AllowedImages
from compatgate.core.facts import Facts
from compatgate.documents.sources import Source, read_paths
from compatgate.errors import Unavailable
from compatgate.kit import clock
from compatgate.kit.database.database import Database, display_url, resolve_url
from compatgate.kit.database.opening import Upgrade, open_state_folder, prepare_to_serve
from compatgate.kit.database.tables import SchemaMismatch
from compatgate.kit.principal import Authorship
from compatgate.service.access.tokens import NewToken
from compatgate.service.app import Rooms
from compatgate.service.gate.decisions.batch_store import CommitMode
from compatgate.service.gate.decisions.batches import append_anchor
from compatgate.service.gate.decisions.last_known import LastKnown, LostMatrix, SnapshotFile
from compatgate.service.gate.decisions.outages import MAX_STALE, OutageOptions
from compatgate.service.gate.decisions.spool import SPOOL_BYTES, SpoolOptions
from compatgate.service.gate.questions.images import ImageSettings
from compatgate.service.gate.questions.service import make_gate
from compatgate.service.gate.questions.verdict_bodies import DICTIONARIES, load_dictionary
from compatgate.service.gate.questions.wheels import WheelSettings
from compatgate.service.matrix.documents.imports import ImportResult
from compatgate.service.matrix.snapshots.snapshot import Snapshot
from compatgate.web.computing import ComputingProcess, preload

AUTHOR = "serve"


class StartOptions(Struct, frozen=True):
    """The input of a start; None: as `open_rooms` and `open_state_folder`.

    ``matrix``: files and folders, imported when the stored matrix is empty; ``start_empty``: accept
    a missing SQLite file although it had a matrix.
    """

    database: str | None = None
    matrix: Sequence[str] = ()
    overlays: Sequence[str] | None = None
    state: str | None = None
    max_stale: timedelta = MAX_STALE
    start_empty: bool = False


class Prepared(Struct, frozen=True):
    """The prepared service: every process begins with its snapshot, as the database confirmed it.

    ``imported``, ``admin`` (the first token) and ``upgrade`` (of the schema) are what the start
    made. ``away``: why the database does not answer; ``seen_revision``: a later one that this
    replica saw before; 0: none.
    """

    options: StartOptions
    facts: Facts
    snapshot: Snapshot
    outages: OutageOptions
    confirmed_at: datetime
    imported: ImportResult | None = None
    admin: NewToken | None = None
    upgrade: Upgrade | None = None
    away: str | None = None
    seen_revision: int = 0

    @property
    def revision(self) -> int:
        """Return the revision of the matrix."""
        return self.snapshot.revision

    def open_rooms(
        self,
        images: ImageSettings,
        *,
        under_test: AllowedImages = EVERY_IMAGE,
        commit: CommitMode = "sync",
        wheels: WheelSettings | None = None,
        spool_size: int = SPOOL_BYTES,
    ) -> Rooms:
        """Open the rooms on the same facts, for one process."""
        database = Database.open(self.options.database)
        if self.outages.file is not None:
            database.file.expect(self.outages.file)
        gate = make_gate(
            database,
            self.facts,
            overlays=self.options.overlays,
            images=images,
            commit=commit,
            wheels=wheels,
            spool=SpoolOptions(self.outages.folder / "spool", spool_size),
        )
        gate.snapshots.begin_with(self.snapshot)
        gate.compute = ComputingProcess(self.options.overlays)
        rooms = Rooms(gate)
        rooms.runs.under_test = under_test
        gate.keep_through_outages(rooms.tokens, self.outages, self.confirmed_at)
        return rooms


def prepare(options: StartOptions) -> Prepared:
    """Read the facts, open (and migrate) the database, import the first matrix, or nothing.

    Without the database, the last-known-good snapshot of this replica takes its place.
    """
    from compatgate.catalog import load_facts

    sources = read_paths(options.matrix)
    facts = load_facts(options.overlays)
    preload(facts)
    load_dictionary(max(DICTIONARIES))
    url = resolve_url(options.database)
    folder = open_state_folder(url, options.state)
    file = SnapshotFile(folder, display_url(url))
    known = file.read()
    if known is not None:
        clock.never_before(known.confirmed_at)
    had = None if options.start_empty or known is None or not known.payload.revision else known
    if had is not None and url.drivername == "sqlite":
        path = url.database or ""
        if not (os.path.isfile(path) and os.path.getsize(path)):
            raise LostMatrix(path, had, file.path)
    outages = OutageOptions(folder, options.max_stale)
    try:
        prepared = _prepare_with_database(options, sources, facts, outages, had, file)
    except (SchemaMismatch, LostMatrix):
        raise
    except Unavailable as error:
        if known is None:
            raise
        if clock.now() - known.confirmed_at > options.max_stale:
            since = known.confirmed_at.strftime("%Y-%m-%d %H:%M:%S UTC")
            error.problem += f"; the last snapshot, of {since}, is older than --max-stale allows"
            raise
        outages = replace(outages, is_checked=False, file=Database(url).file.expect())
        snapshot, at = known.snapshot(facts), known.confirmed_at
        return Prepared(options, facts, snapshot, outages, at, away=error.problem)
    if known is not None and prepared.revision < known.payload.revision:
        prepared = replace(prepared, seen_revision=known.payload.revision)
    return prepared


def _prepare_with_database(
    options: StartOptions,
    sources: Sequence[Source],
    facts: Facts,
    outages: OutageOptions,
    had: LastKnown | None,
    file: SnapshotFile,
) -> Prepared:
    opened = Database.open(options.database)
    upgrade = prepare_to_serve(opened)
    outages = replace(outages, file=opened.file.expect())
    gate = make_gate(opened, facts, overlays=options.overlays)
    rooms = Rooms(gate)
    try:
        imported, matrix = None, rooms.matrix
        if had is not None and gate.snapshot().revision == 0:
            raise LostMatrix(opened.shown, had, file.path)
        lists = (matrix.list_targets, matrix.list_entries, matrix.list_waivers)
        if sources and not any(read(limit=1).items for read in lists):
            names = ", ".join(map(os.path.basename, options.matrix))
            by = Authorship(AUTHOR, f"first start: {names}")
            imported = matrix.import_documents(sources, by)
        with opened.writing() as session:
            append_anchor(session)  # of what a process before this one stored, lost or not
        gate.check_ready()
        admin = rooms.tokens.ensure_admin()
        snapshot, now = gate.snapshot(), clock.now()
        return Prepared(options, facts, snapshot, outages, now, imported, admin, upgrade)
    finally:
        rooms.close()
