"""Decide a question on a snapshot, and make the record of the decision; no database, no log.

A question is JSON. Its bytes are the key of its cached answer, which is valid as long as the
snapshot and the answer itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.evaluate import assess, evaluate, seal
from compatgate.core.performance import MIB, BoundedCache
from compatgate.core.request import Policy, Request, Target, change_pool, parse_request
from compatgate.core.rule import Basis, Finding, Verdict
from compatgate.documents.sources import suggest_name
from compatgate.errors import BadInput, NotFound, RequestTooLarge, quote_error
from compatgate.service.gate.questions.verdict_bodies import pack_body
from compatgate.service.matrix.snapshots.snapshot import Snapshot
from compatgate.strict_json import DECODE_ERRORS, DuplicateKeyError, decode_strict

_encode_sorted = msgspec.json.Encoder(order="deterministic").encode


def encode_question(body: Mapping[str, Any]) -> bytes:
    """Return a parsed body as a question."""
    try:
        return _encode_sorted(body)
    except (TypeError, ValueError, UnicodeEncodeError, RecursionError) as error:
        raise BadInput(f"the request is not JSON: {quote_error(error)}") from None


def decode_question(question: bytes) -> Any:
    """Return the body of a question."""
    try:
        return decode_strict(question)
    except DuplicateKeyError as error:
        raise BadInput(str(error), field=error.key, hint="state it once") from None
    except DECODE_ERRORS as error:
        raise BadInput(f"the request is not JSON: {quote_error(error)}") from None


MAX_STORED_BYTES = 16 * 1024
"""Bytes that a question may take in the database, compressed; with the records of every package
of a large image it takes 5 KiB. Its verdict adds sentences of ours, at most half as much."""


def check_storable(question: bytes) -> None:
    """Refuse a question whose verdict would take too much of the database."""
    if len(question) <= MAX_STORED_BYTES:
        return
    size = len(pack_body(question.decode(errors="replace")))
    if size > MAX_STORED_BYTES:
        body = decode_question(question)
        sizes = {name: len(_encode_sorted(value)) for name, value in body.items()}
        what = f"the question takes {size} bytes, compressed; at most {MAX_STORED_BYTES} are stored"
        hint = "state the parts that use the GPU, and no more"
        raise RequestTooLarge(what, field=max(sizes, key=lambda n: sizes[n]), hint=hint)


class CompletedQuestion(NamedTuple):
    """A question, completed from an image if that was ``read``; ``alone``: from nothing else."""

    body: Any
    read: bool = False
    alone: bool = False


CACHE_SIZE = 8192
CACHE_BYTES = 64 * MIB
"""Estimated bytes of all answers: a pipeline asks again about thousands of images."""
_ASSESSMENT_BYTES = 32 * MIB
_LARGEST_QUESTION = 64 * 1024
_HOUR = 3600.0
T = TypeVar("T")


class SnapshotCache(Generic[T]):
    """Values by question, for one snapshot; safe to use from any number of threads."""

    def __init__(
        self, size_of: Callable[[T], int], size: int = CACHE_SIZE, most_bytes: int = CACHE_BYTES
    ) -> None:
        self._size_of = size_of
        self._values: BoundedCache[bytes, tuple[Snapshot, float, T]] = BoundedCache(
            most_bytes, size
        )

    def get(self, question: bytes, snapshot: Snapshot, now: datetime) -> T | None:
        """Return the value of a question if it is valid at a moment."""
        found = self._values.get(question)
        if found is None:
            return None
        if found[0] is not snapshot or found[1] <= now.timestamp():
            self._values.drop(question)
            return None
        return found[2]

    def put(
        self, question: bytes, snapshot: Snapshot, value: T, valid_until: str | None, now: datetime
    ) -> None:
        """Store a value until the hour ends, or until a date that decides it passes."""
        if len(question) <= _LARGEST_QUESTION:
            size = len(question) + self._size_of(value)
            expires = _compute_expiry(valid_until, now)
            self._values.put(question, (snapshot, expires, value), size)

    def clear(self, _: Any = None) -> None:
        """Drop every value: the snapshot was replaced."""
        self._values.clear()


def _compute_expiry(valid_until: str | None, now: datetime) -> float:
    """Return the Unix time at which a value expires, in seconds.

    Dates end at midnight UTC, which is also the end of an hour; times may end sooner.
    """
    present = now.timestamp()
    hour_ends = present - present % _HOUR + _HOUR
    if valid_until is None or len(valid_until) <= len("2026-11-03"):
        return hour_ends
    moment = datetime.fromisoformat(valid_until)
    ends = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return min(ends, hour_ends) if ends > present else hour_ends


_encode = msgspec.json.Encoder().encode
"""Keeps the order of keys: a verdict shows the stack in that order."""


def decide(body: Any, snapshot: Snapshot, now: datetime, *, by_image: bool = False) -> Verdict:
    """Return the verdict on a question."""
    request = parse_request(body, snapshot.facts.gpus)
    return evaluate(
        request.stack,
        resolve_target(request, snapshot),
        facts=snapshot.facts,
        matrix=snapshot.matrix,
        now=now,
        basis=_choose_basis(request.changes, by_image),
    )


def _choose_basis(changes: Any, by_image: bool) -> Basis:
    if changes:
        return "what-if"
    return "image" if by_image else "stated"


class _Assessment(Struct, frozen=True, gc=False):
    found: Verdict
    policy: Policy


class Decider:
    """The function `decide`, with one cached assessment of a stack for all its images.

    Builds of one service differ in their digest, but rarely in their stack.
    """

    def __init__(self) -> None:
        self._assessed: SnapshotCache[_Assessment] = SnapshotCache(
            lambda assessment: verdict_size(assessment.found), most_bytes=_ASSESSMENT_BYTES
        )
        self.clear = self._assessed.clear

    def decide(
        self, body: Any, snapshot: Snapshot, now: datetime, *, by_image: bool = False
    ) -> Verdict:
        """Return the verdict on a question; arguments and errors are those of `decide`."""
        key = _assessment_key(body, snapshot)
        known = self._assessed.get(key, snapshot, now) if key is not None else None
        if known is not None:
            basis = _choose_basis(body.get("set"), by_image)
            return seal(known.found, known.policy, body.get("image"), now, basis)
        request = parse_request(body, snapshot.facts.gpus)
        target = resolve_target(request, snapshot)
        found = assess(request.stack, target, facts=snapshot.facts, matrix=snapshot.matrix, now=now)
        if key is not None:
            known = _Assessment(found, target.policy)
            self._assessed.put(key, snapshot, known, found.valid_until, now)
        basis = _choose_basis(request.changes, by_image)
        return seal(found, target.policy, request.stack.image, now, basis)


_VERDICT_BYTES, _FINDING_BYTES, _PART_BYTES = 2000, 1000, 300
"""Bytes of a verdict, of a finding with its fixes, and of a part of a stack, as measured."""


def verdict_size(verdict: Verdict) -> int:
    """Estimate the bytes that a verdict takes in memory."""
    findings = sum(1 + len(finding.fixes) for finding in verdict.findings)
    return _VERDICT_BYTES + _FINDING_BYTES * findings + _PART_BYTES * len(verdict.stack)


def _assessment_key(body: Any, snapshot: Snapshot) -> bytes | None:
    """Return the parts of a question that decide its assessment; None: malformed names."""
    if not isinstance(body, Mapping):
        return None
    image, target = body.get("image"), body.get("target") or ""
    if not isinstance(target, str) or not (image is None or (image and isinstance(image, str))):
        return None
    known = snapshot.targets.get(target)
    policy = known.policy.canary if known else None
    rest = {name: value for name, value in body.items() if name != "image"}
    return _encode([*snapshot.matrix.describe_image(image, target, policy), rest])


def deny(verdict: Verdict, finding: Finding, snapshot: Snapshot, now: datetime) -> Verdict:
    """Return a verdict that a finding denies, before whatever else was found."""
    found = replace(
        verdict,
        id="",
        verdict="fail",
        allowed=False,
        findings=(finding, *verdict.findings),
        decided_at="",
        valid_until=None,
    )
    policy = snapshot.target(verdict.target).policy if verdict.target else Policy()
    return seal(found, policy, verdict.image, now, verdict.basis)


def resolve_target(request: Request, snapshot: Snapshot) -> Target:
    """Return the target of a request with the named pools, after applying ``set`` to each."""
    if request.pool is not None:
        return Target("", (request.pool,))
    target = _select_pools(snapshot.target(request.target or ""), request.pools)
    if not request.changes:
        return target
    gpus = snapshot.facts.gpus
    pools = tuple(change_pool(pool, request.changes, gpus) for pool in target.pools)
    return replace(target, pools=pools)


def _select_pools(target: Target, names: Sequence[str]) -> Target:
    """Return the target with only these pools; ``left_out`` lists the others."""
    known = [pool.name for pool in target.pools]
    for name in names:
        if name not in known:
            what = f"the target {target.name!r} has no pool {name!r}"
            raise NotFound(what, field="pools", value=name, hint=suggest_name(name, known))
    left = tuple(name for name in known if names and name not in names)
    if not left:
        return target
    pools = tuple(pool for pool in target.pools if pool.name in names)
    return replace(target, pools=pools, left_out=left)


class NewDecision(Struct, frozen=True):
    """A decision before it has a number."""

    verdict_id: str
    decided_at: datetime
    target: str | None
    outcome: str
    allowed: bool
    matrix_revision: int
    image: str | None
    asked_by: str
    source: str
    duration_us: int


_MARK = b'"decided_at":"'


class Answer(Struct, frozen=True, gc=False):
    """An answer of ``POST /gate``.

    ``cached``: an earlier question on the same snapshot gave the answer.
    """

    verdict: Verdict
    body: bytes
    cached: bool = False

    @classmethod
    def of(cls, verdict: Verdict) -> Answer:
        """Return the answer that carries a verdict."""
        return cls(verdict, msgspec.json.encode(verdict))

    @property
    def size(self) -> int:
        """Estimate the bytes that the answer takes in memory."""
        return len(self.body) + verdict_size(self.verdict)

    def at(self, moment: str) -> Answer:
        """Return the answer with another time of decision; its id stays the same."""
        start = self.body.rindex(_MARK) + len(_MARK)
        end = self.body.index(b'"', start)
        body = b"".join((self.body[:start], moment.encode(), self.body[end:]))
        return Answer(replace(self.verdict, decided_at=moment), body, cached=True)


class AnswerRecord(Struct, frozen=True, gc=False):
    """An answer, and its decision, which must be logged before the answer leaves."""

    answer: Answer
    decision: NewDecision

    @property
    def row(self) -> tuple[NewDecision, str]:
        """Return the row for `DecisionLog`."""
        return self.decision, self.answer.body.decode()


_LONGEST_COLUMN = 512


def make_decision(
    verdict: Verdict, decided_at: datetime, asked_by: str, source: str, duration_us: int
) -> NewDecision:
    """Return the decision record of a verdict."""
    return NewDecision(
        verdict_id=verdict.id,
        decided_at=decided_at,
        target=verdict.target,
        outcome=verdict.verdict,
        allowed=verdict.allowed,
        matrix_revision=verdict.matrix_revision,
        image=_clean_text(verdict.image) if verdict.image else None,
        asked_by=_clean_text(asked_by),
        source=_clean_text(source),
        duration_us=duration_us,
    )


def _clean_text(text: str) -> str:
    """Return text that every database can store; the verdict has the full text."""
    text = text[:_LONGEST_COLUMN]
    return text if text.isprintable() else "".join(c if c.isprintable() else "\ufffd" for c in text)
