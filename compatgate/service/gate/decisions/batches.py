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
from contextlib import suppress
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import astuple
from sqlalchemy import (
    Boolean,
    ForeignKey,
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
from compatgate.service.audit import chain as audit
from compatgate.service.gate.decisions.heads import find_lost, read_heads
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
"""Batches that an anchor looks through for writers that have moved on, or died, since the last."""
_log = logging.getLogger("compatgate.gate")


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


class Verdict(Base):
    """A verdict; its id is a digest of its basis, so each verdict is stored once."""

    __tablename__ = "verdicts"

    id: Mapped[str] = mapped_column(Text, primary_key=True, comment="vd_...")
    body: Mapped[str] = mapped_column(Text, comment="The answer as JSON, as first given")
    packed: Mapped[bytes | None] = mapped_column(
        LargeBinary, comment="The answer as JSON, Zstandard"
    )
    batch: Mapped[int | None] = mapped_column(
        BigKey, comment="That brought it; null: an audit link did"
    )
    image: Mapped[str | None] = mapped_column(Text, comment="Of its decisions")


class Decision(Base):
    """An answered question."""

    __tablename__ = "decisions"
    __table_args__ = (
        Index(None, "target", "id"),
        Index(None, "decided_at"),
        Index(None, "verdict_id"),
    )

    id: Mapped[int] = mapped_column(
        BigKey,
        primary_key=True,
        autoincrement=False,
        comment="1000 x its batch, plus its place in it",
    )
    verdict_id: Mapped[str] = mapped_column(ForeignKey("verdicts.id"))
    decided_at: Mapped[datetime] = mapped_column(UtcTime)
    target: Mapped[str | None] = mapped_column(Text, comment="Null: the question described a pool")
    outcome: Mapped[str] = mapped_column(Text, comment="pass, warn, unknown or fail")
    allowed: Mapped[bool] = mapped_column(Boolean)
    matrix_revision: Mapped[int] = mapped_column(Integer)
    image: Mapped[str | None] = mapped_column(
        Text, comment="Null: that of the verdict; empty: none"
    )
    asked_by: Mapped[str] = mapped_column(Text, comment="Name of the token, or anonymous")
    source: Mapped[str] = mapped_column(Text, comment="rest, cli, hook:kubernetes, ...")
    duration_us: Mapped[int] = mapped_column(Integer, comment="Microseconds that deciding took")


class DecisionBatch(Struct, frozen=True, gc=False):
    """Decisions of one transaction, as a value; hashes and digests are SHA-256, hex."""

    writer: str
    """Random id of the process, after the name of its far gate and a colon."""
    sequence: int
    previous: str
    count: int
    decided_at: str
    content: bytes
    """JSON of the decisions, a list of values each, in the order of the columns."""
    claims: dict[str, str]
    """Digests of verdicts that may be new, by id."""
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
    """Return values of decisions as JSON; the hash of a batch, or of a link, covers these bytes."""
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
    """Anchors the chains of decisions, from time to time while they grow, and at the end."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._has_news = False
        self._next = time.monotonic() + ANCHOR_SECONDS
        self._running: threading.Thread | None = None

    def stored(self) -> None:
        """Note that a batch is stored; anchor in a thread when it is time."""
        self._has_news = True
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + ANCHOR_SECONDS
        if self._running is None or not self._running.is_alive():
            thread = threading.Thread(target=self._try, name="anchor", daemon=True)
            with suppress(RuntimeError):  # the system has no thread to give: the next one does it
                thread.start()
                self._running = thread

    def close(self) -> None:
        """Anchor what is not anchored."""
        if self._running is not None:
            self._running.join()
        if self._has_news:
            self._try()

    def _try(self) -> None:
        with self._lock:
            self._has_news = False
            try:
                with self._database.writing() as session:
                    append_anchor(session)
            except CompatgateError as error:  # the next anchor covers this one's batches, too
                self._has_news = True
                _log.warning("the decisions' chains were not anchored: %s", error)


def append_anchor(session: Session) -> None:
    """Append an anchor to the audit chain, in a writing session that no other overlaps.

    It has the last stored batch of each writer whose recent batches are not anchored, also of
    writers that died, and every batch that was stored and is missing, which a verification reports.
    """
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
        ahead, (ahead.c.writer == StoredBatch.writer) & (ahead.c.sequence == StoredBatch.sequence)
    )
    heads = {row.writer: [row.sequence, bytes(row.hash).hex()] for row in session.execute(query)}
    connection = session.connection()
    lost = find_lost(connection.exec_driver_sql, read_heads(connection.engine.url))
    heads |= {writer: [*head] for writer, head in lost.items()}
    if lost:
        _log.error("decisions that were stored are missing: run: audit verify")
    if not heads:
        return
    subject = f"decisions of {len(heads)} writer{'s' if len(heads) > 1 else ''}"
    detail = {"writers": dict(sorted(heads.items()))}
    seq = audit.append(session, "gate", ACTION, subject, detail)
    session.execute(delete(WriterHead).where(WriterHead.writer.in_(heads)))
    rows = [
        {"writer": writer, "sequence": sequence, "hash": hashed, "link": seq}
        for writer, (sequence, hashed) in heads.items()
    ]
    session.execute(insert(WriterHead), rows)
