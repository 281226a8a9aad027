"""Walk the batches of decisions: check each chain of a writer, its decisions and verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from compatgate.core.performance import sha256
from compatgate.errors import DamagedContent
from compatgate.kit import clock
from compatgate.kit.database.tables import in_parts
from compatgate.service.gate.decisions import service as decisions
from compatgate.service.gate.decisions.batches import (
    FIRST_PREVIOUS,
    NUMBERS,
    StoredBatch,
    Verdict,
    WriterHead,
    decode_claims,
    encode_values,
    hash_batch,
)
from compatgate.service.gate.questions.decider import NewDecision
from compatgate.service.gate.questions.verdict_bodies import read_body
from compatgate.service.recovery.retention import find_deleted

_SETTLED = timedelta(minutes=10)
"""No transaction stays open for so long."""
_MAX_STATEMENTS = 20_000
_COLUMNS = NewDecision.__struct_fields__
_VERDICT_ID = _COLUMNS.index("verdict_id")
_OF_DECISION = [_COLUMNS.index(n) for n in ("target", "outcome", "allowed", "matrix_revision")]
_OF_VERDICT = ("target", "verdict", "allowed", "matrix_revision")


class SealedState(Struct, frozen=True):
    """The verified state, which a link of the chain holds.

    ``legacy``: decisions that links cover, as until schema 0006. All batches up to ``batch`` are
    verified, and no older one is still to come.
    """

    legacy: int = 0
    batch: int = 0
    batches: int = 0
    decisions: int = 0
    revisions: int = 0
    evidence: int = 0


class BatchWalk:
    """A pass over batches in the order of their numbers, with their decisions and verdicts."""

    def __init__(self, session: Session, state: SealedState, mixed: list[tuple[int, int]]) -> None:
        self._session = session
        self._mixed = mixed
        self._statements: dict[str, tuple[Any, ...]] = {}
        self._heads: dict[str, tuple[int, str]] = {}
        self._ahead: dict[str, int] = {}
        self._anchored = dict[str, int]()
        self._old = clock.now() - _SETTLED
        self._deleted = find_deleted(session)
        first = session.execute(select(func.min(StoredBatch.id))).scalar() or 2**62 // NUMBERS
        self._legacy_end = (state.batch + 1 if state.batch else first) * NUMBERS
        self.last_mixed = -1
        self.batches = state.batches
        self.decisions = state.decisions
        self.checked_decisions = 0
        self.settled = state
        self._lines = decisions.read_decision_lines(session, self._legacy_end)
        self._next = next(self._lines, None)

    def problems(self) -> Iterator[str]:
        """Yield a sentence for each problem of the batches that are to be verified."""
        query = select(StoredBatch.__table__).where(StoredBatch.id > self.settled.batch)
        query = query.order_by(StoredBatch.id).execution_options(yield_per=1000)
        recent = False
        for row in self._session.execute(query):
            yield from self._batch(row)
            recent = recent or (row.decided_at > self._old and not row.late)
            if not recent:
                self.settled = replace(
                    self.settled, batch=row.id, batches=self.batches, decisions=self.decisions
                )
        yield from self._unknown_decisions(2**62)

    def _batch(self, row: Any) -> Iterator[str]:
        yield from self._unknown_decisions(row.id * NUMBERS)
        values = self._take((row.id + 1) * NUMBERS)
        self.batches += 1
        stored = bytes(row.hash).hex()
        if row.id <= self._deleted and len(values) != row.count:
            self.decisions += row.count
            self._heads[row.writer] = (row.sequence, stored)
            return
        self.decisions += len(values)
        self.checked_decisions += len(values)
        previous, name = self._previous(row), f"batch {row.sequence} of writer {row.writer}"
        if previous is None:
            yield f"{name}: the batch before is missing"
        first, claims = row.id * NUMBERS, _read_claims(row.verdicts)
        span = f"decisions {first} to {first + row.count - 1}"
        own = (encode_values(values), claims)
        if len(values) != row.count:
            yield f"{span}: changed or missing ({name})"
        elif previous and stored != hash_batch(row.writer, row.sequence, previous, *own):
            yield f"{span}: changed ({name})"
        yield from self._verdicts(row, claims, name)
        yield from self._contradictions(values, first)
        self._heads[row.writer] = (row.sequence, stored)
        if row.writer not in self._anchored:
            query = select(WriterHead.sequence).where(WriterHead.writer == row.writer)
            self._anchored[row.writer] = self._session.execute(query).scalar() or 0
        if row.sequence > self._anchored[row.writer]:
            self._ahead[row.writer] = self._ahead.get(row.writer, 0) + row.count

    def _previous(self, row: Any) -> str | None:
        """Return the hash of the batch before; None: it is missing."""
        if row.sequence == 1:
            return FIRST_PREVIOUS
        sequence, hashed = self._heads.get(row.writer, (0, ""))
        if sequence == row.sequence - 1:
            return hashed
        query = select(StoredBatch.hash).where(
            StoredBatch.writer == row.writer, StoredBatch.sequence == row.sequence - 1
        )
        found = self._session.execute(query).scalar()
        return None if found is None else bytes(found).hex()

    def _verdicts(self, row: Any, claims: dict[str, str], name: str) -> Iterator[str]:
        """Compare the verdicts that a batch brought; another batch may have been first."""
        for verdict_id, (digest, batch) in digest_bodies(self._session, claims).items():
            if digest == claims[verdict_id]:
                continue
            if digest is not None and batch is None:  # an audit link brought it
                continue
            if batch is not None and batch != row.id:
                query = select(StoredBatch.verdicts).where(StoredBatch.id == batch)
                first_claims = _read_claims(self._session.execute(query).scalar())
                if first_claims.get(verdict_id) == digest:
                    continue
            yield f"verdict {verdict_id}: changed or missing ({name})"

    def _contradictions(self, values: list[list[Any]], first: int) -> Iterator[str]:
        """Compare decisions with their verdicts, each of which is read once."""
        new = list({line[_VERDICT_ID] for line in values} - self._statements.keys())
        if len(self._statements) + len(new) > _MAX_STATEMENTS:
            self._statements.clear()
            new = list({line[_VERDICT_ID] for line in values})
        with suppress(DamagedContent):  # which the batch that brought it reports
            for key, body in decisions.read_bodies(self._session, new).items():
                known = all(name in body for name in _OF_VERDICT)
                self._statements[key] = tuple(body[n] for n in _OF_VERDICT) if known else ()
        for place, line in enumerate(values):
            statement = self._statements.get(line[_VERDICT_ID])
            if statement and statement != tuple(line[column] for column in _OF_DECISION):
                yield f"decision {first + place}: contradicts verdict {line[_VERDICT_ID]}"

    def _take(self, end: int) -> list[list[Any]]:
        """Return the values of the next stored decisions, before a number.

        Those that links cover are left out.
        """
        taken = []
        while self._next is not None and self._next[0] < end:
            number, *values = self._next
            while self._mixed and self._mixed[0][1] < number:
                self._mixed.pop(0)
            if self._mixed and self._mixed[0][0] <= number:
                self.decisions += 1
                self.last_mixed = number
            else:
                taken.append(values)
            self._next = next(self._lines, None)
        return taken

    def _unknown_decisions(self, end: int) -> Iterator[str]:
        first = self._next[0] if self._next else 0
        if unknown := self._take(end):
            yield f"{len(unknown)} decisions from {first} on have no batch"

    def unanchored(self) -> int:
        """Return the number of decisions that no anchor covers."""
        return sum(self._ahead.values())


def digest_bodies(session: Session, ids: Iterable[str]) -> dict[str, tuple[str | None, int | None]]:
    """Return the digests of verdicts, and the batches that brought them; None: not stored."""
    found: dict[str, tuple[str | None, int | None]] = dict.fromkeys(ids, (None, None))
    for some in in_parts(list(found)):
        for row in session.execute(select(Verdict.__table__).where(Verdict.id.in_(some))):
            digest = ""
            with suppress(DamagedContent):
                digest = sha256(read_body(row.body, row.packed).encode())
            found[row.id] = (digest, row.batch)
    return found


def _read_claims(stored: str | None) -> dict[str, str]:
    """Return stored claims; damaged ones are empty, so the hash of their batch does not match."""
    try:
        return decode_claims(stored)
    except (ValueError, msgspec.MsgspecError):
        return {}
