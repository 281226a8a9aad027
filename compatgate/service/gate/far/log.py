"""Record the decisions of a far gate in its spool, and deliver them to the central gate.

A decision is on disk before its answer leaves. A thread sends batches over REST, in order, and
sends them again until the central gate has them; it knows each by writer and sequence.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from compatgate.errors import Conflict, quote_error
from compatgate.kit import clock
from compatgate.service.gate.decisions.batch_store import Delivery, ForkedChain
from compatgate.service.gate.decisions.batches import DecisionBatch, WriterChain
from compatgate.service.gate.decisions.decision_log import DecisionLog, LogState, Row
from compatgate.service.gate.decisions.delivery import Courier
from compatgate.service.gate.far.schemas import MAX_BATCHES, name_caller
from compatgate.service.gate.questions.decider import NewDecision

if TYPE_CHECKING:
    from pathlib import Path

    from compatgate.client import Client
    from compatgate.kit.database.database import Database
    from compatgate.service.gate.decisions.decision_log import _Batch
    from compatgate.service.gate.decisions.spool import Spool, SpoolOptions

_BODY_BYTES = 256 * 1024
"""Bytes of new verdicts from which on a batch is divided; a request holds at most 1 MiB."""
_REQUEST_BYTES = 512 * 1024
_TIMEOUT_S = 60.0
_LONGEST_RETRY_S = 30.0
_FORGET_S = 3600.0
"""After this time a verdict is sent again: the central gate may have archived it."""
_COLUMNS = NewDecision.__struct_fields__


class Central(Struct, frozen=True):
    """The central gate, as a far gate reaches it.

    Attributes:
        url: of the gate, without ``/api/v1``.
        token: the secret; empty: it is in ``token_file``.
        token_file: file with the secret, read at each connection; None: there is none.
        name: of the token; writers of this far gate are called after it.
    """

    url: str
    token: str = ""
    token_file: Path | None = None
    name: str = ""

    def connect(self, timeout_s: float, retries: int) -> Client:
        """Return a client.

        Args:
            timeout_s: seconds to wait for the connection, and for each part of an answer.
        """
        from compatgate.gate_client import make_client
        from compatgate.kit.cli.output import read_bytes

        secret = self.token
        if self.token_file is not None:
            found = read_bytes(str(self.token_file), "--bundle-token", 4096)
            secret = found.decode("ascii", "replace").strip()
        return make_client(self.url, secret or None, timeout_s, retries=retries, stored=False)


class FarLog(DecisionLog):
    """A log whose place is the spool."""

    def __init__(self, database: Database, spool: SpoolOptions, central: Central) -> None:
        self._central = central
        self._remembered = time.monotonic()
        super().__init__(database, "sync", spool)

    def _begin(self) -> None:
        super()._begin()
        self._chain = WriterChain(self._central.name)
        self._away = (clock.now(), "the log of this gate is its spool")

    def _spool_owner(self) -> str:
        return f"far gate {self._central.name}"

    def _make_courier(self, spool: Spool) -> Courier:
        destination = self._destination = CentralDestination(self._central)
        return Courier(
            lambda: destination,
            quote_error,
            spool,
            lambda: self._is_delivered(spool),
            self._set_aside,
            _LONGEST_RETRY_S,
        )

    def close(self) -> None:
        """Stop to deliver; what is not delivered stays in the spool."""
        super().close()
        self._destination.end()

    def _is_delivered(self, spool: Spool) -> bool:
        with self._placing:
            return not spool.batches

    @property
    def away(self) -> None:
        """Return None: the spool is the usual place of these decisions."""
        return None

    @property
    def state(self) -> LogState:
        """Return what waits for delivery; never wait."""
        return replace(super().state, degraded=False, since=None, reason=None)

    def _wait_for_end(self, courier: Courier) -> None:
        """Let the courier empty a spool that is half full: a file begins anew once it is empty."""
        spool = self._spool
        if spool is not None and spool.used > spool.size // 2:
            super()._wait_for_end(courier)

    def _place(
        self,
        batch: _Batch,
        in_doubt: DecisionBatch | None = None,
        why: BaseException | None = None,
    ) -> bool:
        """Store a batch in the spool, divided if its verdicts are long; wake the courier."""
        assert self._spool is not None  # noqa: S101 - the constructor asks for one
        with self._placing:
            self._close(batch)
            if time.monotonic() - self._remembered > _FORGET_S:
                self._spooled.clear()
                self._remembered = time.monotonic()
            try:
                for rows in _divide(batch.rows, self._spooled):
                    self._append(self._spool, rows)
            except BaseException as error:
                self._finish(batch, error)
                return True
        self._finish(batch, None)
        if self._courier is not None:
            self._courier.wake_if_settled()
        return True

    def _append(self, spool: Spool, rows: Sequence[Row]) -> None:
        bodies = {one.verdict_id: body for one, body in rows if one.verdict_id not in self._spooled}
        far_gate = self._central.name  # the caller is known to be one of this far gate
        named = [replace(one, asked_by=name_caller(one.asked_by, far_gate)) for one, _ in rows]
        made = self._chain.make(named, bodies)
        spool.append(Delivery(made, bodies, late=True))
        self._chain.take(made)
        self._spooled.update(bodies)


def _divide(rows: Sequence[Row], known: set[str]) -> Iterator[Sequence[Row]]:
    """Yield the rows in parts whose new verdicts have `_BODY_BYTES`, or are one alone."""
    begin, size = 0, 0
    seen = set(known)
    for place, (decision, body) in enumerate(rows):
        if decision.verdict_id in seen:
            continue
        seen.add(decision.verdict_id)
        length = len(body.encode())
        if size and size + length > _BODY_BYTES:
            yield rows[begin:place]
            begin, size = place, 0
        size += length
    yield rows[begin:]


class CentralDestination:
    """The central gate, as the destination of batches; one thread uses it."""

    def __init__(self, central: Central) -> None:
        self._central = central
        self._client: Client | None = None

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
            self.end()
            raise

    def close(self) -> None:
        """Keep the connection for the next delivery."""

    def end(self) -> None:
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
        length = _estimate_size(delivery)
        follows = (
            last is not None
            and (batch.writer, batch.sequence) == (last.writer, last.sequence + 1)
            and size + length <= _REQUEST_BYTES
            and len(batches) < MAX_BATCHES
        )
        if last is not None and not follows:
            yield {"writer": last.writer, "batches": batches}
            batches, size = [], 0
        batches.append(_to_json(delivery))
        size, last = size + length, batch
    if last is not None:
        yield {"writer": last.writer, "batches": batches}


def _to_json(delivery: Delivery) -> Mapping[str, Any]:
    batch = delivery.batch
    return {
        "sequence": batch.sequence,
        "previous": batch.previous,
        "hash": batch.hash,
        "decisions": [dict(zip(_COLUMNS, line, strict=True)) for line in batch.lines],
        "verdicts": {key: delivery.bodies[key] for key in batch.claims},
    }


_NAMES_BYTES = sum(map(len, _COLUMNS)) + 4 * len(_COLUMNS)


def _estimate_size(delivery: Delivery) -> int:
    """Estimate the bytes of a batch in a request: quotes in the text of verdicts are escaped."""
    batch = delivery.batch
    bodies = sum(len(body) * 5 // 4 for body in delivery.bodies.values())
    return len(batch.content) + batch.count * _NAMES_BYTES + bodies
