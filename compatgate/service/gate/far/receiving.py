"""Receive the decisions of far gates: verify each writer's hash chain, store each batch once.

The writer of a far gate is called after the token that delivers, ``cluster-7:0123456789abcdef``. So
nobody continues the chain of another gate or of a process of this one, and every anchor in the
audit log names the far gate.
"""

from __future__ import annotations

import copy
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec
from sqlalchemy.orm import Session

from compatgate.core.evaluate import identify, is_allowed
from compatgate.core.request import Policy
from compatgate.core.rule import OUTCOME_RANK, Verdict
from compatgate.documents.convert import to_policy
from compatgate.documents.specs import TargetDoc
from compatgate.errors import BadInput, CompatgateError, Conflict, Unavailable
from compatgate.kit import clock
from compatgate.kit.database.database import Database, unavailable
from compatgate.kit.principal import AccessRefused, Principal
from compatgate.service.gate.decisions import service as decisions
from compatgate.service.gate.decisions.batch_store import (
    CommitMode,
    DecisionWriter,
    Delivery,
    ForkedChain,
)
from compatgate.service.gate.decisions.batches import FIRST_PREVIOUS, Anchors, WriterChain
from compatgate.service.gate.far.schemas import (
    DeliveredBatch,
    DeliveredDecision,
    DeliveryBody,
    DeliveryRequest,
    name_caller,
)
from compatgate.service.gate.questions.decider import MAX_STORED_BYTES, NewDecision
from compatgate.service.gate.questions.verdict_bodies import pack_body
from compatgate.service.matrix.documents import revisions

PATIENCE_SECONDS = 5.0
"""Maximum wait of a delivery for earlier ones."""
_TOGETHER = 50
"""Requests of one transaction."""
_MAX_POLICIES = 4096
_MAX_VERDICT_BYTES = 4 * MAX_STORED_BYTES
"""Far more than the verdict of a question takes that a gate answers."""
_LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
"""No gate has decided before, also without a matrix."""


class ChainForked(Conflict):
    """Another batch of this writer and sequence is stored: the far gate's chain is forked."""

    slug = "chain-forked"


class ChainGap(Conflict):
    """The batch before is not stored here: this gate was restored from a backup."""

    slug = "chain-gap"


class VerdictMismatch(Conflict):
    """A delivered verdict is not what its id or its decision says."""

    slug = "verdict-mismatch"


class _Waiting(NamedTuple):
    """The batches of a request that waits for its turn, and how many of them were new."""

    deliveries: Sequence[Delivery]
    stored: Future[int]


class DeliveryDesk:
    """Stores the batches of far gates; requests that come at the same time share a transaction."""

    def __init__(self, database: Database, commit: CommitMode = "sync") -> None:
        self._database = database
        self._commit: CommitMode = commit
        self._turn = threading.Lock()
        self._queue: deque[_Waiting] = deque()
        self._writer: _ChainWriter | None = None
        self._anchors = Anchors(database)
        self._policies: dict[tuple[str, int], Policy] = {}
        self._made_at: dict[int, datetime] = {}

    def receive(self, request: DeliveryRequest, caller: Principal) -> DeliveryBody:
        """Store the batches that are new; return once they are on disk."""
        owner = request.writer.rpartition(":")[0]
        if caller.kind not in ("token", "local"):
            what = "only a token delivers decisions: its name is part of the log"
            raise AccessRefused(what, principal=caller, field="writer")
        if owner != caller.name:
            raise AccessRefused(
                f"the writer {request.writer} belongs to the token {owner}",
                principal=caller,
                field="writer",
                value=request.writer,
                hint=f"this token is {caller.name}; deliver with the token {owner}",
            )
        if (refusal := self._database.outage()) is not None:
            raise refusal
        for place, batch in enumerate(request.batches):
            caller.require_targets({one.target for one in batch.decisions if one.target})
            self._check_verdicts(batch, f"batches[{place}]", caller)
        deliveries = [_read_batch(request, place) for place in range(len(request.batches))]
        stored = self._store(deliveries)
        if stored:
            self._anchors.stored()
        last, known = deliveries[-1].batch.sequence, len(deliveries) - stored
        return DeliveryBody(request.writer, last, stored, known)

    def _check_verdicts(self, sent: DeliveredBatch, field: str, caller: Principal) -> None:
        """Check that each verdict has its id, and that decisions say what their verdicts say."""
        with self._database.reading() as session:
            found = {
                key: self._read_verdict(session, key, body, f"{field}.verdicts.{key}")
                for key, body in sent.verdicts.items()
            }
            numbers = {one.matrix_revision for one in sent.decisions}
            began = {number: self._find_begin(session, number) for number in numbers}
            others = list({one.verdict_id for one in sent.decisions} - found.keys())
            stored = decisions.read_bodies(session, others)
        caller.require_targets({one.target for one in found.values() if one.target})
        found |= {key: msgspec.convert(body, Verdict) for key, body in stored.items()}
        for one in sent.decisions:
            if one.decided_at < (begin := began[one.matrix_revision]):
                what = f"was decided before {clock.iso(begin)}, when its revision was made"
                at = one.decided_at.isoformat()
                raise VerdictMismatch(what, field=f"{field}.decisions", value=at)
            if (verdict := found.get(one.verdict_id)) is None:
                continue  # the database refuses the batch
            stated = (verdict.verdict, verdict.allowed, verdict.target, verdict.matrix_revision)
            if stated != (one.outcome, one.allowed, one.target, one.matrix_revision):
                what = "the decision contradicts its verdict"
                raise VerdictMismatch(what, field=f"{field}.decisions", value=one.verdict_id)

    def _read_verdict(self, session: Session, key: str, body: str, field: str) -> Verdict:
        try:
            found = msgspec.json.decode(body, type=Verdict)
            whole = msgspec.json.decode(body) == msgspec.to_builtins(found.to_json())
        except (msgspec.MsgspecError, ValueError, RecursionError):
            raise BadInput("is not a verdict", field=field) from None
        if (size := len(pack_body(body))) > _MAX_VERDICT_BYTES:
            what = f"takes {size} bytes, compressed; at most {_MAX_VERDICT_BYTES} are stored"
            raise VerdictMismatch(what, field=field, value=found.id)
        policy = self._find_policy(session, found)
        self._check_time(session, found, field)
        if not whole or found.id != key or identify(found, policy) != key:
            what = "the verdict does not have this id"
            hint = "the far gate may have another version: upgrade it"
            raise VerdictMismatch(what, field=field, value=found.id, hint=hint)
        worst = max((OUTCOME_RANK[one.outcome] for one in found.findings), default=0)
        stated = (OUTCOME_RANK.get(found.verdict, 0), found.mode, found.allowed)
        if stated != (worst, policy.mode, is_allowed(found.verdict, policy)):
            what = "the verdict contradicts its findings, or the policy of its target"
            raise VerdictMismatch(what, field=field, value=found.id)
        return found

    def _check_time(self, session: Session, verdict: Verdict, field: str) -> None:
        begin = self._find_begin(session, verdict.matrix_revision)
        try:
            at = datetime.fromisoformat(verdict.decided_at)
            is_right = begin <= at <= clock.now() + clock.SKEW
        except (ValueError, TypeError):  # a text that is no time, or has no zone
            is_right = False
        if not is_right:
            what = f"is no time since {clock.iso(begin)}, when the verdict's revision was made"
            raise VerdictMismatch(what, field=f"{field}.decided_at", value=verdict.decided_at)

    def _find_begin(self, session: Session, number: int) -> datetime:
        """Return the earliest time of a decision on a revision, by any right clock."""
        made_at = self._made_at.get(number) or revisions.find_time(session, number)
        if made_at is None:
            return _LONG_AGO
        if len(self._made_at) >= _MAX_POLICIES:
            self._made_at.clear()
        self._made_at[number] = made_at
        return made_at - clock.SKEW

    def _find_policy(self, session: Session, verdict: Verdict) -> Policy:
        if verdict.matrix_revision > (last := revisions.latest_revision(session)):
            what = f"revision {verdict.matrix_revision} is not made yet: {last} is the last one"
            raise ChainGap(what, field="verdicts", value=verdict.id, hint="start a new chain")
        if verdict.target is None:
            return Policy()
        key = verdict.target, verdict.matrix_revision
        if key not in self._policies:
            document = revisions.find_document_at(session, "Target", *key)
            if not isinstance(document, TargetDoc):
                what = f"target {key[0]} is not in revision {key[1]} of this gate's matrix"
                raise ChainGap(what, field="verdicts", value=verdict.id, hint="start a new chain")
            if len(self._policies) >= _MAX_POLICIES:
                self._policies.clear()
            self._policies[key] = to_policy(document.spec.policy)
        return self._policies[key]

    def _store(self, deliveries: Sequence[Delivery]) -> int:
        """Store a request, by this thread or by another one; return how many batches were new."""
        waiting = _Waiting(deliveries, Future())
        self._queue.append(waiting)
        while not waiting.stored.done():
            if not self._turn.acquire(timeout=PATIENCE_SECONDS):
                raise Unavailable("too many deliveries at once", hint="try again")
            try:
                if not waiting.stored.done():
                    some = min(len(self._queue), _TOGETHER)
                    self._store_together([self._queue.popleft() for _ in range(some)])
            finally:
                self._turn.release()
        if (error := waiting.stored.exception()) is not None:
            raise copy.copy(error)  # others raise it, too
        return waiting.stored.result()

    def _store_together(self, group: Sequence[_Waiting]) -> None:
        """Store requests in one transaction; one that is refused does not hold up the others."""
        try:
            new = self._write([one for waiting in group for one in waiting.deliveries])
        except Exception as error:
            if len(group) > 1 and isinstance(error, (ChainForked, ChainGap)):
                for waiting in group:
                    self._store_together([waiting])
            else:
                for waiting in group:
                    waiting.stored.set_exception(error)
        else:
            for waiting in group:
                keys = ((one.batch.writer, one.batch.sequence) for one in waiting.deliveries)
                waiting.stored.set_result(sum(key in new for key in keys))

    def _write(self, deliveries: Sequence[Delivery]) -> set[tuple[str, int]]:
        """Store batches in one transaction; return writer and sequence of those that are new."""
        writer = self._writer = self._writer or _ChainWriter(self._database, self._commit)
        writer.new = set()
        try:
            with writer.turn:
                writer.write(deliveries)
        except ForkedChain as error:
            hint = "the far gate sets this chain aside, and begins another one"
            raise ChainForked(str(error), field="batches", hint=hint) from None
        except CompatgateError:
            raise
        except Exception as error:
            if _is_missing_verdict(error):
                what = "a decision has a verdict that neither the request nor this gate has"
                raise ChainGap(what, field="verdicts", hint="start a new chain") from error
            raise unavailable(self._database, error) from error
        return writer.new

    def close(self) -> None:
        """Anchor what is not anchored, and close the connection."""
        self._anchors.close()
        with self._turn:
            if self._writer is not None:
                self._writer.close()


class _ChainWriter(DecisionWriter):
    """A writer that stores a batch only after the one before.

    ``new``: writer and sequence of the batches that the last `write` stored.
    """

    def __init__(self, database: Database, commit: CommitMode) -> None:
        super().__init__(database, commit, is_hasty=True)
        self.new: set[tuple[str, int]] = set()

    def _store_batches(
        self, cursor: Any, deliveries: Sequence[Delivery]
    ) -> list[tuple[int, Delivery]]:
        stored = super()._store_batches(cursor, deliveries)
        batches = [one.batch for _, one in stored]
        hashes = {(one.writer, one.sequence): one.hash for one in batches}
        for batch in batches:
            if batch.sequence > 1:
                before = (batch.writer, batch.sequence - 1)
                found = hashes.get(before) or self.find_hash(cursor, *before)
                if found is None:
                    what = f"batch {batch.sequence - 1} of writer {batch.writer} is not stored here"
                    hint = "this gate was restored from a backup; start a new chain"
                    raise ChainGap(what, field="batches", value=batch.sequence, hint=hint)
                if found != batch.previous:
                    what = (
                        f"batch {batch.sequence} of writer {batch.writer} continues another batch"
                    )
                    raise ForkedChain(what)
        self.new.update(hashes)
        return stored


def _read_batch(request: DeliveryRequest, place: int) -> Delivery:
    sent, field = request.batches[place], f"batches[{place}]"
    if place and sent.sequence != request.batches[place - 1].sequence + 1:
        what = "does not follow the batch before"
        raise BadInput(what, field=f"{field}.sequence", value=sent.sequence)
    if place and sent.previous != request.batches[place - 1].hash:
        what = "is not the hash of the batch before"
        raise BadInput(what, field=f"{field}.previous", value=sent.previous)
    if sent.sequence == 1 and sent.previous != FIRST_PREVIOUS:
        what = "the first batch continues none"
        raise BadInput(what, field=f"{field}.previous", value=sent.previous, hint="64 zeros")
    far_gate = request.writer.rpartition(":")[0]
    chain = WriterChain()
    chain.writer, chain.sequence, chain.head = request.writer, sent.sequence - 1, sent.previous
    batch = chain.make(
        [_to_decision(one, field, far_gate) for one in sent.decisions], sent.verdicts
    )
    if batch.hash != sent.hash:
        hint = "the decisions were changed on their way, or the far gate has another version"
        raise BadInput(
            "is not the hash of the batch", field=f"{field}.hash", value=sent.hash, hint=hint
        )
    return Delivery(batch, sent.verdicts, late=True)


def _to_decision(one: DeliveredDecision, field: str, far_gate: str) -> NewDecision:
    if one.decided_at > clock.now() + clock.SKEW:
        hint = "set the clock of the far gate; it delivers once that time has come"
        at = one.decided_at.isoformat()
        raise Unavailable("is in the future", field=f"{field}.decided_at", value=at, hint=hint)
    if one.asked_by != name_caller(one.asked_by.rpartition("@")[0], far_gate):
        what, hint = "does not name the far gate", f"the caller, and @{far_gate}"
        raise BadInput(what, field=f"{field}.asked_by", value=one.asked_by, hint=hint)
    for name in ("target", "image", "asked_by", "source"):
        text = getattr(one, name)
        if text and not text.isprintable():
            raise BadInput("has characters that the log cannot store", field=f"{field}.{name}")
    return msgspec.convert(one, NewDecision, from_attributes=True)


def _is_missing_verdict(error: Exception) -> bool:
    return "FOREIGN KEY" in str(error).upper()  # so a driver says that a decision has no verdict
