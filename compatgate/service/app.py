"""Construct the services of every room on one database; nothing else does.

Rooms know each other by what they are handed here. A command that asks one question makes a gate
alone (`make_gate`): all rooms take longer to import than its answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from compatgate.canary.workloads.library import load_library
from compatgate.catalog import load_facts
from compatgate.kit.database.opening import open_database
from compatgate.service.access.browser_sessions import BrowserSessions
from compatgate.service.access.tokens import Tokens
from compatgate.service.attention.incidents import IncidentService
from compatgate.service.attention.worker import (
    IncidentWebhook,
    IncidentWorker,
    WebhookSender,
)
from compatgate.service.audit.chain import AuditLog, RefusalLog
from compatgate.service.changes.comparison.backtests import backtest_edits
from compatgate.service.changes.comparison.service import plan_upgrade
from compatgate.service.changes.upgrades.service import Upgrades
from compatgate.service.gate.decisions.service import Decisions, list_allowed_images
from compatgate.service.gate.far.bundles import BundleSource
from compatgate.service.gate.far.gate import FarGate, LoggedRefusals, NoDatabase, known_callers
from compatgate.service.gate.far.keeper import BundleKeeper
from compatgate.service.gate.far.receiving import DeliveryDesk
from compatgate.service.gate.questions.service import Gate, make_gate
from compatgate.service.matrix.documents.revisions import Edit
from compatgate.service.matrix.documents.service import MatrixService
from compatgate.service.matrix.proposals.service import ProposalService
from compatgate.service.matrix.snapshots.reader import Snapshots
from compatgate.service.nodes.inventory import NoInventory
from compatgate.service.nodes.service import Nodes
from compatgate.service.recovery.verification import AuditChain
from compatgate.service.runs.evidence.baselines import BaselineService
from compatgate.service.runs.evidence.evidence import StoredEvidence
from compatgate.service.runs.queue.service import Runs
from compatgate.service.runs.work.service import WorkDesk

if TYPE_CHECKING:
    from compatgate.kit.http.signatures import Secret
    from compatgate.service.gate.questions.images import ImageSettings
    from compatgate.service.gate.questions.wheels import WheelSettings


def open_rooms(
    database: str | None = None,
    *,
    make: bool = True,
    overlays: Sequence[str] | None = None,
    images: ImageSettings | None = None,
    kind: type[Gate] = Gate,
) -> Rooms:
    """Open the rooms of a database: URL, or path of an SQLite file.

    None: ``COMPATGATE_DATABASE``, else a file in the user's data folder. ``make``: create an SQLite
    file that is missing or empty.
    """
    opened = open_database(database, make=make)
    return Rooms(make_gate(opened, load_facts(overlays), kind, overlays=overlays, images=images))


class Rooms:
    """The services of all rooms around one gate; safe for any number of threads.

    A process may make them before it forks.
    """

    def __init__(self, gate: Gate) -> None:
        database, facts, snapshots = gate.database, gate.facts, gate.snapshots
        self.gate = gate
        self.snapshots = snapshots
        self.tokens = Tokens(database)
        self.sessions = BrowserSessions(database, self.tokens)
        self.audit = AuditLog(database)
        self.chain = AuditChain(database)
        self.decisions = Decisions(database)
        self.refusals = RefusalLog(database)
        self.runs = Runs(database, facts, snapshots, load_library, list_allowed_images)
        snapshots.evidence = StoredEvidence(self.runs.define_suites)
        self.baselines = BaselineService(database)
        self.work = WorkDesk(self.runs, self.baselines)
        self.matrix = MatrixService(database, facts, snapshots, self.runs.find_unknown_suites)
        self.proposals = ProposalService(
            database, facts, snapshots, self._backtest, self.matrix.open_reader
        )
        self.nodes = Nodes(database, facts, snapshots)
        self.upgrades = Upgrades(database, snapshots, self._plan)
        self.bundles = BundleSource(database, snapshots, gate.overlays)
        self.deliveries = DeliveryDesk(database, gate.commit)
        self.incidents = IncidentService(
            database, snapshots, self.runs, self.baselines, self.nodes, self.upgrades
        )
        self._watcher: IncidentWorker | None = None

    def _backtest(self, edits: Sequence[Edit], days: int) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.to_builtins(backtest_edits(self.gate, edits, days=days))
        return found

    def _plan(self, target: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return plan_upgrade(self.gate, self.matrix, self.nodes, target, body, by_key=True)

    def watch_incidents(self, webhook: IncidentWebhook | None) -> None:
        """Survey incidents and post them in threads of this process, until it closes."""
        sender = WebhookSender(self.gate.database, webhook) if webhook else None
        self._watcher = IncidentWorker(self.incidents, sender)
        self._watcher.start()

    def close(self) -> None:
        """Write what is pending, and close the database."""
        if self._watcher is not None:
            self._watcher.close()
        self.nodes.inventory.close()
        self.tokens.close()
        self.refusals.close()
        self.deliveries.close()
        self.gate.close()


def open_far_rooms(
    bundle: BundleKeeper,
    callers: Sequence[Secret],
    images: ImageSettings,
    wheels: WheelSettings | None,
    spool_size: int,
) -> Rooms:
    """Open the rooms of a far gate for one process; it knows the secrets of its callers alone."""
    facts = bundle.present.snapshot.facts
    snapshots = Snapshots(NoDatabase(bundle.options), facts, StoredEvidence())
    gate = FarGate(snapshots, bundle, images=images, wheels=wheels, spool_size=spool_size)
    return FarRooms(gate, callers)


class FarRooms(Rooms):
    """The rooms of a gate without a database: its nodes are unknown, refusals lines of its log."""

    def __init__(self, gate: FarGate, callers: Sequence[Secret]) -> None:
        super().__init__(gate)
        self.refusals = LoggedRefusals(gate.database)
        self.nodes.inventory = NoInventory(gate.database)
        self.tokens.keeper = gate.bundle
        self.tokens.know(known_callers(callers))

    def watch_incidents(self, webhook: IncidentWebhook | None) -> None:
        """Do nothing: the central gate has the incidents."""
