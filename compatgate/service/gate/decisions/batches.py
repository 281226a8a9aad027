"""Group decisions into batches that form one hash chain for each writer.

Each process that logs decisions is a writer with a random id. Its batches are numbered 1, 2, 3, ...
A batch is a value: storing it again changes nothing, because the database knows it by writer and
sequence. So no lock spans writers, and a commit whose answer was lost is simply made again.

The hash of a batch is the SHA-256 of the JSON list ``[writer, sequence, previous, decisions,
verdicts]``: the hash of the writer's batch before, the digest of the decisions, and the digests
of the verdicts that came with it, by id. Anchors in the audit chain hold the writers' last hashes.

The number of a decision is 1000 times the number of its batch, plus its place in it.
"""

from __future__ import annotations

import base64
import logging
import re
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import astuple
from sqlalchemy import (
    Boolean,
    Index,
    Integer,
    LargeBinary,
    Text,
    UniqueConstraint,
    delete,
    func,
    insert,
    or_,
    select,
)
from sqlalchemy.orm import Mapped, Session, mapped_column

from compatgate.core.performance import sha256
from compatgate.errors import CompatgateError
from compatgate.kit.clock import iso
from compatgate.kit.database.database import Database
from compatgate.kit.database.tables import Base, BigKey, UtcTime
from compatgate.service.audit.events import repository as audit
from compatgate.service.gate.questions.decider import NewDecision

NUMBERS = 1000
"""Decision numbers that a batch has; at most so many decisions form a batch."""
FIRST_PREVIOUS = "0" * 64
"""The hash that a writer's first batch continues."""
_VERDICT_ID, _DIGEST = re.compile("vd_[0-9a-f]{32}"), re.compile("[0-9a-f]{64}")
_ID_BYTES, _CLAIM_BYTES = 16, 48
_encode = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="deterministic").encode
_decode_lines = msgspec.json.Decoder(list[list[Any]]).decode
_decode_claims = msgspec.json.Decoder(dict[str, str]).decode
ACTION = "decisions.anchor"
ANCHOR_SECONDS = 10.0
"""Time between two anchors of a process that logs decisions."""
RECENT_BATCHES = 20_000
"""Batches that an anchor looks through for writers that died before they had anchored."""
_log = logging.getLogger("compatgate.gate")
Heads = dict[str, tuple[int, str]]
"""Sequence and hash of the last batch, by writer."""


class StoredBatch(Base):
    """A batch of decisions of one writer."""

    __tablename__ = "decision_batches"
    __table_args__ = (
        UniqueConstraint("writer", "sequence"),
        # The migration makes it partial, WHERE late; to say so here loads both dialects.
        Index("ix_decision_batches_late", "id", "decided_at"),
    )

    id: Mapped[int] = mapped_column(
        BigKey, primary_key=True, comment="Decisions have 1000 x this, and the numbers after"
    )
    writer: Mapped[str] = mapped_column(Text, comment="Random id of a process")
    sequence: Mapped[int] = mapped_column(BigKey, comment="1, 2, 3, ... of the writer")
    count: Mapped[int] = mapped_column(Integer, comment="Decisions")
    decided_at: Mapped[datetime] = mapped_column(UtcTime, comment="Of the last decision")
    late: Mapped[bool] = mapped_column(Boolean, comment="Delivered from a spool")
    verdicts: Mapped[str | None] = mapped_column(
        Text, comment="Ids and SHA-256 of the verdicts that came with it"
    )
    hash: Mapped[bytes] = mapped_column(LargeBinary, comment="SHA-256 of the writer's chain")


class WriterHead(Base):
    """The last anchored batch of a writer."""

    __tablename__ = "decision_writers"

    writer: Mapped[str] = mapped_column(Text, primary_key=True)
    sequence: Mapped[int] = mapped_column(BigKey, comment="Of the batch")
    hash: Mapped[str] = mapped_column(Text, comment="Of the batch, hex")
    link: Mapped[int] = mapped_column(BigKey, comment="Number of the audit link")


class DecisionBatch(Struct, frozen=True, gc=False):
    """Decisions of one transaction, as a value.

    Attributes:
        writer: random id of the process, after the name of its far gate and a colon.
        previous: hash of the writer's batch before.
        content: JSON of the decisions, a list of values each, in the order of the columns.
        claims: SHA-256 of verdicts that may be new, by id.
        hash: of writer, sequence, previous, content and claims, hex.
    """

    writer: str
    sequence: int
    previous: str
    count: int
    decided_at: str
    content: bytes
    claims: dict[str, str]
    hash: str

    @property
    def lines(self) -> list[list[Any]]:
        """Return the decisions as values in the order of the columns."""
        return _decode_lines(self.content)


def hash_batch(
    writer: str, sequence: int, previous: str, content: bytes, claims: Mapping[str, str]
) -> str:
    """Compute the hash of a batch; arguments as of `DecisionBatch`."""
    return sha256(_encode_sorted([writer, sequence, previous, sha256(content), claims]))


def encode_claims(claims: Mapping[str, str]) -> str | None:
    """Return claims as they are stored: Base64 of ids and digests, or JSON if an id is unusual."""
    if not claims:
        return None
    parts = sorted(claims.items())
    if not all(_VERDICT_ID.fullmatch(key) and _DIGEST.fullmatch(value) for key, value in parts):
        return encode_claims_as_json(claims)
    content = b"".join(bytes.fromhex(key[3:] + digest) for key, digest in parts)
    return base64.b64encode(content).decode()


def encode_claims_as_json(claims: Mapping[str, str]) -> str:
    """Return claims as they were stored until schema 0009."""
    return _encode_sorted(claims).decode()


def decode_claims(stored: str | None) -> dict[str, str]:
    """Return stored claims by verdict."""
    if not stored:
        return {}
    if stored.startswith("{"):
        return _decode_claims(stored)
    content = base64.b64decode(stored, validate=True)
    if len(content) % _CLAIM_BYTES:
        raise ValueError("claims of verdicts are cut short")
    starts = range(0, len(content), _CLAIM_BYTES)
    parts = (content[start : start + _CLAIM_BYTES] for start in starts)
    return {f"vd_{part[:_ID_BYTES].hex()}": part[_ID_BYTES:].hex() for part in parts}


def decision_values(decision: NewDecision) -> list[Any]:
    """Return a decision as the hashed values, in the order of the columns."""
    verdict_id, decided_at, *others = astuple(decision)
    return [verdict_id, iso(decided_at), *others]


def encode_values(rows: Sequence[Sequence[Any]]) -> bytes:
    """Return values of decisions as JSON; the batch's hash covers these bytes."""
    return _encode(rows)


def far_gate_of(writer: str) -> str | None:
    """Return the name of the far gate that a writer belongs to; None: a process of this gate."""
    return writer.rpartition(":")[0] or None


class WriterChain:
    """The chain of one writer in memory; not for use by two threads at a time.

    ``owner``: far gate that the writer is called after; empty: a process of the gate itself.
    """

    def __init__(self, owner: str = "") -> None:
        self._owner = owner
        self.begin()

    def begin(self) -> None:
        """Begin a new chain: another process shares the old one, or its last batch is in doubt."""
        self.writer = (f"{self._owner}:" if self._owner else "") + secrets.token_hex(8)
        self.sequence = 0
        self.head = FIRST_PREVIOUS

    def make(self, decisions: Sequence[NewDecision], bodies: Mapping[str, str]) -> DecisionBatch:
        """Return the next batch; `take` makes it part of the chain.

        ``decisions``: at least one, at most `NUMBERS`.
        """
        lines = [decision_values(one) for one in decisions]
        content = encode_values(lines)
        claims = {key: sha256(body.encode()) for key, body in bodies.items()}
        sequence = self.sequence + 1
        hashed = hash_batch(self.writer, sequence, self.head, content, claims)
        return DecisionBatch(
            self.writer, sequence, self.head, len(lines), lines[-1][1], content, claims, hashed
        )

    def take(self, batch: DecisionBatch) -> None:
        """Note that a batch is stored: the next one continues it."""
        self.sequence, self.head = batch.sequence, batch.hash


class Anchors:
    """Anchors the chains of one process, from time to time and at its end."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._latest: Heads = {}
        self._next = time.monotonic() + ANCHOR_SECONDS
        self._running: threading.Thread | None = None

    def stored(self, chain: WriterChain) -> None:
        """Note the last stored batch of a chain; anchor in a thread when it is time."""
        self.note(chain.writer, chain.sequence, chain.head)

    def note(self, writer: str, sequence: int, hashed: str) -> None:
        """Note the last stored batch of a writer; anchor in a thread when it is time."""
        self._latest[writer] = (sequence, hashed)
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + ANCHOR_SECONDS
        if self._running is None or not self._running.is_alive():
            self._running = threading.Thread(target=self._try, name="anchor", daemon=True)
            self._running.start()

    def close(self) -> None:
        """Anchor what is not anchored."""
        if self._running is not None:
            self._running.join()
        if self._latest:
            self._try()

    def _try(self) -> None:
        """Anchor; after a failure the next anchor covers this one's batches, too."""
        with self._lock:
            heads = dict(self._latest)
            try:
                with self._database.writing() as session:
                    append_anchor(session, heads)
            except CompatgateError as error:
                _log.warning("the decisions' chains were not anchored: %s", error)
                return
            for writer, head in heads.items():
                if self._latest.get(writer) == head:
                    del self._latest[writer]


def append_anchor(session: Session, heads: Mapping[str, tuple[int, str]]) -> None:
    """Append an anchor to the audit chain, in a writing session that no other overlaps.

    Heads that the database lacks are left out; writers that died before they had anchored are
    added.
    """
    wanted = {**_find_heads(session), **_read_back(session, heads)}
    moved = {
        writer: head for writer, head in wanted.items() if not _is_anchored(session, writer, head)
    }
    if not moved:
        return
    detail = {"writers": {writer: list(head) for writer, head in sorted(moved.items())}}
    count = len(moved)
    subject = f"decisions of {count} writer{'s' if count > 1 else ''}"
    seq = audit.append(session, "gate", ACTION, subject, detail)
    session.execute(delete(WriterHead).where(WriterHead.writer.in_(moved)))
    rows = [
        {"writer": writer, "sequence": sequence, "hash": hashed, "link": seq}
        for writer, (sequence, hashed) in moved.items()
    ]
    session.execute(insert(WriterHead), rows)


def _read_back(session: Session, heads: Mapping[str, tuple[int, str]]) -> Heads:
    """Return the heads whose batch is stored; a chain that has just begun has none."""
    found: Heads = {}
    for writer, (sequence, hashed) in heads.items():
        query = select(StoredBatch.hash).where(
            StoredBatch.writer == writer, StoredBatch.sequence == sequence
        )
        stored = session.execute(query).scalar()
        if stored is not None and bytes(stored).hex() == hashed:
            found[writer] = (sequence, hashed)
        elif sequence:
            _log.error("batch %d of writer %s is not in the database", sequence, writer)
    return found


def _is_anchored(session: Session, writer: str, head: tuple[int, str]) -> bool:
    query = select(WriterHead.sequence).where(WriterHead.writer == writer)
    found = session.execute(query).scalar()
    return found is not None and found >= head[0]


def _find_heads(session: Session) -> Heads:
    """Return the last batches of writers that have recent batches after their last anchor."""
    newest = session.execute(select(func.max(StoredBatch.id))).scalar() or 0
    ahead = (
        select(StoredBatch.writer, func.max(StoredBatch.sequence).label("sequence"))
        .outerjoin(WriterHead, WriterHead.writer == StoredBatch.writer)
        .where(StoredBatch.id > newest - RECENT_BATCHES)
        .where(or_(WriterHead.writer.is_(None), StoredBatch.sequence > WriterHead.sequence))
        .group_by(StoredBatch.writer)
        .subquery()
    )
    query = select(StoredBatch.writer, StoredBatch.sequence, StoredBatch.hash).join(
        ahead,
        (ahead.c.writer == StoredBatch.writer) & (ahead.c.sequence == StoredBatch.sequence),
    )
    return {row.writer: (row.sequence, bytes(row.hash).hex()) for row in session.execute(query)}
