"""Decide from the bundle of a central gate, without a database, and deliver the decisions to it.

A far gate is a gate whose database refuses every transaction: what needs one (changes, history,
pages) is refused with a pointer to the central gate. A decision is in the spool before its answer
leaves. The courier sends batches over REST, in order, and sends them again until the central gate
has them; it knows each by writer and sequence.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from sqlalchemy import URL

from compatgate.errors import Conflict, Forbidden
from compatgate.kit import clock
from compatgate.kit.database.database import Database
from compatgate.kit.http.signatures import Secret
from compatgate.service.access.token_table import KnownToken, TokenRow
from compatgate.service.access.tokens import digest_of
from compatgate.service.audit.chain import RefusalLog
from compatgate.service.gate.decisions.batch_store import Delivery, ForkedChain, Row
from compatgate.service.gate.decisions.decision_log import DecisionLog
from compatgate.service.gate.decisions.spool import SpoolOptions
from compatgate.service.gate.far.keeper import (
    AppliedBundle,
    BundleKeeper,
    BundleOptions,
    Central,
)
from compatgate.service.gate.far.schemas import MAX_BATCHES, name_caller
from compatgate.service.gate.questions.decider import NewDecision
from compatgate.service.gate.questions.service import Gate
from compatgate.service.matrix.snapshots.reader import Snapshots

if TYPE_CHECKING:
    from compatgate.client import Client
    from compatgate.service.gate.decisions.outages import Degraded
    from compatgate.service.gate.questions.images import ImageSettings
    from compatgate.service.gate.questions.wheels import WheelSettings

_CALLER_SCOPES = ("read", "gate", "plan")
_BODY_BYTES = 256 * 1024
"""Bytes of new verdicts from which on a batch is divided; a request holds at most 1 MiB."""
_REQUEST_BYTES = 512 * 1024
_TIMEOUT_S = 60.0
_COLUMNS = NewDecision.__struct_fields__
_NAMES_BYTES = sum(map(len, _COLUMNS)) + 4 * len(_COLUMNS)
_log = logging.getLogger("compatgate.far")


class ReadOnlyGate(Forbidden):
    """An error: this gate decides from a bundle, and has no database."""

    slug = "read-only-gate"

    def __init__(self, central: str) -> None:
        super().__init__(
            "this is a read-only gate: it decides from a bundle, changes nothing, and has no"
            " history",
            hint=f"ask the central gate: {central}",
        )


class NoDatabase(Database):
    """A database that refuses every transaction."""

    def __init__(self, options: BundleOptions) -> None:
        super().__init__(URL.create("sqlite", database=str(options.folder / "none.db")))
        self._central = options.central.url
        self.outage = lambda: ReadOnlyGate(self._central)

    @property
    def shown(self) -> str:
        """Return the URL of the central gate, which the spool belongs to."""
        return self._central


class FarGate(Gate):
    """A read-only gate, of a prepared bundle."""

    def __init__(
        self,
        snapshots: Snapshots,
        bundle: BundleKeeper,
        *,
        images: ImageSettings | None = None,
        wheels: WheelSettings | None = None,
        spool_size: int,
    ) -> None:
        options = bundle.options
        self._central = options.central
        self.bundle = bundle
        super().__init__(
            snapshots,
            overlays=(),
            images=images,
            wheels=wheels,
            spool=SpoolOptions(options.folder / "spool", spool_size),
        )
        self._use(bundle.present)
        self.snapshots.keeper = bundle
        bundle.start(self._use)

    def _make_log(self, spool: SpoolOptions | None) -> DecisionLog:
        assert spool is not None  # noqa: S101 - the constructor gives one
        return DecisionLog(self.database, "sync", spool, partial(CentralDestination, self._central))

    def _use(self, new: AppliedBundle) -> None:
        self.snapshots.replace(new.snapshot)
        bundle = new.trusted.bundle
        if not bundle.facts_match:
            _log.warning(
                "the facts of this program differ from those of the central gate: answers may"
                " differ; run the same version"
            )

    def degraded(self) -> Degraded | None:
        """Return the state while the central gate confirms nothing; None: it does."""
        return self.bundle.degraded()

    def snapshot_age_s(self) -> float:
        """Return the seconds since the central gate last confirmed the bundle."""
        return self.bundle.age_s()

    def require_writable(self) -> None:
        """Refuse a change or a page."""
        raise ReadOnlyGate(self._central.url)

    require_pages = require_writable

    def check_ready(self) -> dict[str, Any]:
        """Return the state of a gate that can decide."""
        snapshot = self.snapshots.current()
        payload = self.bundle.present.trusted.bundle.payload
        log = self.log_state
        state: dict[str, Any] = {
            "central": self._central.url,
            "far_gate": self._central.name,
            "revision": snapshot.revision,
            "evidence": snapshot.evidence,
            "targets": len(snapshot.targets),
            "unusable_targets": snapshot.unusable,
            "facts": snapshot.facts.digest,
            "facts_of_central": payload.facts,
            "snapshot_age_s": round(self.bundle.age_s(), 1),
            "spool": {"batches": log.batches, "bytes": log.used, "set_aside": log.set_aside},
        }
        if (degraded := self.degraded()) is not None:
            state["degraded"] = degraded.to_json()
        return state

    def close(self) -> None:
        """Stop to poll, and leave what is not delivered in the spool."""
        self.bundle.close()
        super().close()


class LoggedRefusals(RefusalLog):
    """Refused attempts of a gate without an audit chain: they are lines of the log."""

    def note(self, identity: str, actor: str, place: str, reason: str) -> None:
        """Log a refusal."""
        _log.warning("%s was refused %s: %s", actor, place, reason)


def known_callers(callers: Iterable[Secret]) -> list[KnownToken]:
    """Return the tokens of callers, which this gate alone knows."""
    about: dict[str, Any] = {"created_at": clock.now(), "created_by": "serve --caller-token"}
    about |= dict.fromkeys(("expires_at", "last_used_at", "revoked_at"))
    return [
        KnownToken(
            digest_of(one.key.decode("utf-8", "replace")),
            TokenRow(f"far_{one.name}", one.name, _CALLER_SCOPES, **about),
        )
        for one in callers
    ]


class CentralDestination:
    """The central gate as the destination of decisions, which all go through the spool.

    The connection is kept from one delivery to the next; one thread uses it.
    """

    is_direct = False
    longest_retry_s = 30.0
    in_doubt = False
    turn = nullcontext()

    def __init__(self, central: Central) -> None:
        self.name = central.name
        self._central = central
        self._client: Client | None = None

    @property
    def owner(self) -> str:
        """Return the far gate, whose spools outlive its processes."""
        return f"far gate {self.name}"

    def write(self, deliveries: Sequence[Delivery]) -> None:
        """Deliver batches in a few requests; return once the central gate has all of them."""
        from compatgate.client.operations import Operations

        try:
            for body in make_requests(deliveries):
                if self._client is None:
                    self._client = self._central.connect(_TIMEOUT_S, 1)
                self._client.send(Operations.deliver_decisions.request(body))
        except Conflict as error:
            raise ForkedChain(f"the central gate says: {error.problem}") from error
        except BaseException:
            self.close()
            raise

    def rehearse(self) -> None:
        """Do nothing: decisions are recorded in the spool."""

    def interrupt(self) -> None:
        """Do nothing: nobody waits for a delivery."""

    def divide(self, rows: Sequence[Row], known: Container[str]) -> Iterator[Sequence[Row]]:
        """Yield the decisions, with callers of this far gate, in parts that fit into requests.

        A part has `_BODY_BYTES` of new verdicts, or one verdict alone.
        """
        named = [
            (replace(one, asked_by=name_caller(one.asked_by, self.name)), body)
            for one, body in rows
        ]
        begin, size = 0, 0
        counted: set[str] = set()
        for place, (decision, body) in enumerate(named):
            if decision.verdict_id in known or decision.verdict_id in counted:
                continue
            counted.add(decision.verdict_id)
            length = len(body.encode())
            if size and size + length > _BODY_BYTES:
                yield named[begin:place]
                begin, size = place, 0
            size += length
        yield named[begin:]

    def close(self) -> None:
        """Close the connection."""
        client, self._client = self._client, None
        if client is not None:
            client.close()


def make_requests(deliveries: Sequence[Delivery]) -> Iterator[Mapping[str, Any]]:
    """Yield request bodies: consecutive batches of one writer, as many as fit."""
    batches: list[Mapping[str, Any]] = []
    size, last = 0, None
    for delivery in deliveries:
        batch = delivery.batch
        bodies = sum(len(body) * 5 // 4 for body in delivery.bodies.values())  # quotes are escaped
        length = len(batch.content) + batch.count * _NAMES_BYTES + bodies
        follows = (
            last is not None
            and (batch.writer, batch.sequence) == (last.writer, last.sequence + 1)
            and size + length <= _REQUEST_BYTES
            and len(batches) < MAX_BATCHES
        )
        if last is not None and not follows:
            yield {"writer": last.writer, "batches": batches}
            batches, size = [], 0
        batches.append(
            {
                "sequence": batch.sequence,
                "previous": batch.previous,
                "hash": batch.hash,
                "decisions": [dict(zip(_COLUMNS, line, strict=True)) for line in batch.lines],
                "verdicts": {key: delivery.bodies[key] for key in batch.claims},
            }
        )
        size, last = size + length, batch
    if last is not None:
        yield {"writer": last.writer, "batches": batches}
