"""Deliver the decisions of a far gate to the central gate.

A decision is in the spool before its answer leaves. The courier sends batches over REST, in order,
and sends them again until the central gate has them; it knows each by writer and sequence.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from compatgate.errors import Conflict
from compatgate.service.gate.decisions.batch_store import Delivery, ForkedChain, Row
from compatgate.service.gate.far.schemas import MAX_BATCHES, name_caller
from compatgate.service.gate.questions.decider import NewDecision

if TYPE_CHECKING:
    from pathlib import Path

    from compatgate.client import Client

_BODY_BYTES = 256 * 1024
"""Bytes of new verdicts from which on a batch is divided; a request holds at most 1 MiB."""
_REQUEST_BYTES = 512 * 1024
_TIMEOUT_S = 60.0
_COLUMNS = NewDecision.__struct_fields__
_NAMES_BYTES = sum(map(len, _COLUMNS)) + 4 * len(_COLUMNS)


class Central(Struct, frozen=True):
    """The central gate, as a far gate reaches it, with the token or the file that has its secret.

    Writers of this far gate are called after the name of the token.
    """

    url: str
    token: str = ""
    token_file: Path | None = None
    name: str = ""

    def connect(self, timeout_s: float, retries: int) -> Client:
        """Return a client.

        ``timeout_s``: seconds to wait for the connection, and for each part of an answer.
        """
        from compatgate.gate_client import make_client
        from compatgate.kit.cli.output import read_bytes

        secret = self.token
        if self.token_file is not None:
            found = read_bytes(str(self.token_file), "--bundle-token", 4096)
            secret = found.decode("ascii", "replace").strip()
        return make_client(self.url, secret or None, timeout_s, retries=retries, stored=False)


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
