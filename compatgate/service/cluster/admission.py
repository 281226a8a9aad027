"""Decide about an object: ask the gate its questions, log the decisions, and answer."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from typing import Any, Literal, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.rule import Finding, Verdict
from compatgate.errors import CompatgateError, RegistryTimeout, Unavailable
from compatgate.kit import clock, tracing
from compatgate.kit.kubernetes import read_mapping
from compatgate.service.cluster.answers import AnswerMaker, AskedResult, refuse_as_written
from compatgate.service.cluster.claims import KnownClaims, LayeredClaims, no_claims
from compatgate.service.cluster.kinds import Kinds, PodKind
from compatgate.service.cluster.landing import KnownNodes
from compatgate.service.cluster.matching import unknown_kind
from compatgate.service.cluster.placement import PlacementMatrix
from compatgate.service.cluster.questions import (
    Exemption,
    Question,
    Questions,
    make_questions,
    new_questions,
    searched,
)
from compatgate.service.cluster.review import Review, ReviewAnswer
from compatgate.service.gate.decisions.decision_log import wait_until_committed
from compatgate.service.gate.decisions.outages import Degraded
from compatgate.service.gate.questions.decider import AnswerRecord
from compatgate.service.gate.questions.service import Gate
from compatgate.service.matrix.snapshots.snapshot import Snapshot

SOURCE = "hook:kubernetes"
UnmatchedPolicy = Literal["allow", "warn", "deny"]
FailurePolicy = Literal["allow", "deny"]
_THREADS = 16
MAX_QUESTIONS = 512
"""Maximum number of questions of one object; equal containers share one question."""
_FOR_IMAGES = 0.8
"""Share of the time that images may take; the rest is for an answer without them."""
_DECIDED_OPERATIONS = ("CREATE", "UPDATE")
_SUBRESOURCES = ("", "ephemeralcontainers", "resize")
_encode = msgspec.json.Encoder(order="deterministic").encode
_log = logging.getLogger("compatgate.gate")


class AdmissionOptions(Struct, frozen=True):
    """The operator's options, also for what matches no target or cannot be decided.

    ``exemptions``: namespaces, each by a waiver. ``cluster``: whose pods are decided; nodes of
    others do not count. ``claims``: by namespace; those that are not among them count as GPUs.
    """

    kinds: Kinds
    unmatched: UnmatchedPolicy = "warn"
    on_failure: FailurePolicy = "deny"
    exemptions: tuple[Exemption, ...] = ()
    cluster: str | None = None
    claims: Callable[[str], KnownClaims] = no_claims


class ReviewContext(Struct, frozen=True):
    """The caller of a review, the limits of its answer, and what to call in its course.

    ``check``: with each question; raises if the caller may not ask about its target. ``decided``:
    with each logged verdict and the seconds that it took. ``unmatched`` and ``failed``: for a
    question without a target, or when nothing can be decided. ``claims`` come with the object, and
    count first.
    """

    by: str
    wait_s: float
    link: Callable[[str], str]
    decided: Callable[[Verdict, float], None]
    check: Callable[[dict[str, Any]], None]
    unmatched: Callable[[], None] = lambda: None
    failed: Callable[[], None] = lambda: None
    claims: KnownClaims | None = None


class MustWait(Exception):
    """Memory does not have what a review needs."""


class OpenReview(Struct, frozen=True):
    """An object with its questions, before they are decided.

    ``end``: when there must be an answer, of `time.monotonic`.
    """

    review: Review
    asked: ReviewContext
    questions: Questions
    end: float

    @property
    def left_s(self) -> float:
        """Return the seconds that are left for the answer."""
        return max(0.0, self.end - time.monotonic())


class PreviewGate(Protocol):
    """A source of verdicts that are not logged: a gate, or a bundle."""

    def snapshot(self) -> Snapshot:
        """Return the matrix."""
        ...

    def preview(self, body: Mapping[str, Any], *, image_s: float | None = None) -> Verdict:
        """Return the verdict, as `Gate.preview`."""
        ...

    def degraded(self) -> Degraded | None:
        """Return the state of a gate without its database; None: it has it."""
        ...


class NodeSource(Protocol):
    """The known nodes of a gate."""

    @property
    def is_ready(self) -> bool:
        """Return whether `known` answers without waiting."""
        ...

    def known(self, snapshot: Snapshot, cluster: str | None = None) -> KnownNodes | None:
        """Return the known nodes of one or every cluster by target and pool; None: none."""
        ...


class Admission:
    """The service that answers the API server; safe for any number of threads.

    ``nodes`` is None: placed without known nodes.
    """

    def __init__(
        self, gate: Gate | PreviewGate, options: AdmissionOptions, nodes: NodeSource | None = None
    ) -> None:
        self._nodes = nodes
        self._gate = gate
        self._live = gate if isinstance(gate, Gate) else None
        self._options = options
        self._answers = AnswerMaker(gate, options)
        self._pool = ThreadPoolExecutor(_THREADS, "admission")

    def answer(self, review: Review, asked: ReviewContext) -> ReviewAnswer:
        """Decide about an object; never raise for its content."""
        opened = self.open(review, asked)
        return opened if isinstance(opened, ReviewAnswer) else self.decide(opened)

    def open(
        self, review: Review, asked: ReviewContext, *, may_wait: bool = True
    ) -> OpenReview | ReviewAnswer:
        """Place an object, and return its questions, or the answer to one that needs none.

        ``may_wait`` is False: only memory is asked; raises `MustWait` if it lacks something.
        """
        end = time.monotonic() + asked.wait_s
        kind = self._options.kinds.of(review.group, review.kind)
        if not _is_relevant(review) or review.document is None:
            return ReviewAnswer(True)
        if kind is None and review.subresource:
            return ReviewAnswer(True)
        with self._failures(review, asked) as answered:
            carrier = kind or unknown_kind(review.kind)
            questions = self._questions(review, carrier, asked.claims, may_wait=may_wait)
            if kind is None:
                questions = searched(questions, review.kind)
            if not questions.asked:
                return ReviewAnswer(True, warnings=questions.remarks, remarks=questions.remarks)
            if len(questions.asked) > MAX_QUESTIONS:
                what = f"{len(questions.asked)} different GPU containers, at most {MAX_QUESTIONS}"
                said = f"compatgate: the object has {what} are decided"
                return refuse_as_written(said)
            for question in questions.asked:
                if question.is_asked:
                    asked.check(question.body)
            return OpenReview(review, asked, questions, end)
        return answered[0]

    def decide(self, opened: OpenReview) -> ReviewAnswer:
        """Decide the questions of an object, with their images; log the decisions and wait."""
        with self._failures(opened.review, opened.asked) as answered:
            results = self._record_denials(self._ask(opened), opened)
            return self._answers.conclude(results, opened)
        return answered[0]

    def recall(self, opened: OpenReview) -> list[AnswerRecord] | None:
        """Return the decisions of an object where memory has all of them; never wait.

        They are to be logged, then `conclude` returns the answer. None: `decide` is needed.
        """
        if self._live is None or opened.review.dry_run:
            return None
        found = []
        for question in opened.questions.asked:
            if question.finding is not None and question.finding.outcome == "fail":
                return None
            if not question.is_asked:
                continue
            record = self._recall(self._live, question, opened.asked)
            if record is None:
                return None
            found.append(record)
        return found

    def conclude(self, opened: OpenReview, records: Sequence[AnswerRecord]) -> ReviewAnswer:
        """Return the answer once the decisions of `recall` are logged."""
        with self._failures(opened.review, opened.asked) as answered:
            left = iter(records)
            results = [
                AskedResult(question, next(left).answer.verdict if question.is_asked else None)
                for question in opened.questions.asked
            ]
            return self._answers.conclude(results, opened)
        return answered[0]

    def fail(self, error: CompatgateError, asked: ReviewContext) -> ReviewAnswer:
        """Return the answer to an object that an error keeps from being decided."""
        if error.status < 500:
            return refuse_as_written(f"compatgate: {error.detail}")
        return self._answers.failed(error.detail, asked)

    @contextmanager
    def _failures(self, review: Review, asked: ReviewContext) -> Iterator[list[ReviewAnswer]]:
        """Turn an error within into an answer, the first of the list."""
        answered: list[ReviewAnswer] = []
        try:
            yield answered
        except MustWait:
            raise
        except CompatgateError as error:
            answered.append(self.fail(error, asked))
        except Exception:
            _log.exception("admission of %s failed", review.kind)
            said = "an internal error; the gate's log has the details"
            answered.append(self._answers.failed(said, asked))

    def _questions(
        self, review: Review, kind: PodKind, stated: KnownClaims | None, *, may_wait: bool
    ) -> Questions:
        def known() -> PlacementMatrix:
            if self._live is None or self._nodes is None:
                return placement_matrix(self._gate.snapshot())
            snapshot = self._live.snapshot() if may_wait else _at_hand(self._live, self._nodes)
            nodes = self._nodes.known(snapshot, self._options.cluster)
            return placement_matrix(snapshot, nodes)

        def of(document: Any) -> Questions:
            kinds = self._options.kinds
            return make_questions(document, kind, review.namespace, kinds, known, claims)

        if not may_wait and self._options.claims is not no_claims:
            raise MustWait
        claims = self._options.claims(review.namespace)
        if stated is not None:
            claims = LayeredClaims(stated, claims)
        new = of(review.document)
        if review.operation != "UPDATE" or review.old is None:
            return new
        try:
            return new_questions(new, of(review.old))
        except CompatgateError:  # the annotation that is being mended
            return new

    def _ask(self, opened: OpenReview) -> list[AskedResult]:
        """Answer in this thread what needs no image, and the others in parallel.

        Decisions of this thread are logged together.
        """
        open_ones = [question for question in opened.questions.asked if question.is_asked]
        live = None if opened.review.dry_run else self._live
        here = self._evaluate(live, open_ones, opened) if live else []
        found = {id(result.question): result for result in here}
        rest = [question for question in open_ones if id(question) not in found]
        if rest:
            found |= {id(one.question): one for one in self._find(rest, opened)}
        asked = opened.questions.asked
        return [found.get(id(question)) or AskedResult(question) for question in asked]

    def _record_denials(self, results: list[AskedResult], opened: OpenReview) -> list[AskedResult]:
        """Log a decision for each placement that is denied; it is denied whether or not that works.

        The verdict is that on the target that the placement leads to, the finding before others.
        """
        live = None if opened.review.dry_run else self._live
        if live is None:
            return results
        began, records = time.perf_counter(), {}
        for result in results:
            finding = result.question.finding
            if finding is None or finding.outcome != "fail":
                continue
            try:
                records[id(result)] = _deny(live, result.question, finding, opened.asked)
            except CompatgateError as error:
                _log.warning("a denied placement is not in the decision log: %s", error.detail)
        if not records:
            return results
        try:
            wait_until_committed(live.submit(list(records.values())), opened.left_s)
        except CompatgateError as error:
            _log.warning("denied placements are not in the decision log: %s", error.detail)
            return results
        for record in records.values():
            opened.asked.decided(record.answer.verdict, time.perf_counter() - began)
        return [
            replace(result, verdict=records[id(result)].answer.verdict)
            if id(result) in records
            else result
            for result in results
        ]

    def _recall(self, live: Gate, question: Question, asked: ReviewContext) -> AnswerRecord | None:
        return live.known(_encode(question.body), asked_by=asked.by, source=source_of(question))

    def _evaluate(
        self, live: Gate, asked_for: list[Question], opened: OpenReview
    ) -> list[AskedResult]:
        """Answer the questions that need no image, and log their decisions."""
        began, asked = time.perf_counter(), opened.asked
        found: list[tuple[Question, AnswerRecord]] = []
        for question in asked_for:
            record = self._recall(live, question, asked)
            if record is None and opened.left_s and not live.reads_image(question.body):
                with suppress(CompatgateError):  # `_find` says why, or leaves the stack open
                    record = live.evaluate(
                        _encode(question.body), asked_by=asked.by, source=source_of(question)
                    )
            if record is not None:
                found.append((question, record))
        if not found:
            return []
        wait_until_committed(live.submit([record for _, record in found]), opened.left_s)
        seconds = time.perf_counter() - began
        for _, record in found:
            asked.decided(record.answer.verdict, seconds)
        return [AskedResult(question, record.answer.verdict) for question, record in found]

    def _find(self, asked_for: list[Question], opened: OpenReview) -> list[AskedResult]:
        """Evaluate questions, each in a thread; their images may have to be read."""

        def one(question: Question) -> AskedResult:
            try:
                return AskedResult(question, self._decide(question, opened))
            except CompatgateError as error:
                return AskedResult(question, error=error)

        futures: list[Future[AskedResult]] = [
            self._pool.submit(tracing.carry(one), question) for question in asked_for
        ]
        done, late = wait(futures, opened.left_s)
        for future in late:
            future.cancel()
        missing = RegistryTimeout(f"there was no answer within {opened.asked.wait_s:.3g} seconds")
        return [
            future.result() if future in done else AskedResult(question, error=missing)
            for question, future in zip(asked_for, futures, strict=True)
        ]

    def _decide(self, question: Question, opened: OpenReview) -> Verdict:
        """Return the verdict; an unreadable image leaves the stack open, and so unknown."""
        body = question.body
        for_image = max(0.001, opened.left_s * _FOR_IMAGES)
        try:
            return self._verdict(question, body, opened, for_image)
        except CompatgateError as error:
            if not (error.field or "").startswith(("image", "stack")):
                raise
            body = open_stack(body, error)
        return self._verdict(question, body, opened, 0)

    def _verdict(
        self, question: Question, body: dict[str, Any], opened: OpenReview, image_s: float
    ) -> Verdict:
        if opened.review.dry_run or self._live is None:
            return self._gate.preview(body, image_s=image_s)
        began = time.perf_counter()
        found = self._live.answer(
            _encode(body), asked_by=opened.asked.by, source=source_of(question), image_s=image_s
        ).verdict
        opened.asked.decided(found, time.perf_counter() - began)
        return found


def open_stack(body: dict[str, Any], error: CompatgateError) -> dict[str, Any]:
    """Return a question that says why its image could not be read."""
    stack = body.get("stack", {})
    left = [*stack.get("open", ()), f"the image is not known: {error.problem}"]
    return {**body, "stack": {**stack, "open": left}}


def _deny(live: Gate, question: Question, finding: Finding, asked: ReviewContext) -> AnswerRecord:
    """Return the denial of a placement; an image that was not read leaves the stack open."""
    body = {**question.body, "target": question.target or finding.have}
    source = source_of(question)
    try:
        return live.refuse(body, finding, asked_by=asked.by, source=source)
    except CompatgateError as error:
        if not (error.field or "").startswith("stack"):
            raise
        body["stack"] = {"open": ["the stack was not read: the placement is denied"]}
    return live.refuse(body, finding, asked_by=asked.by, source=source)


def _at_hand(live: Gate, nodes: NodeSource) -> Snapshot:
    """Return the snapshot in memory; raise `MustWait` if a look at the database is due."""
    try:
        snapshot = live.snapshots.at_hand()
    except Unavailable:
        raise MustWait from None
    if snapshot is None or not nodes.is_ready:
        raise MustWait
    return snapshot


def _is_relevant(review: Review) -> bool:
    """Return whether the object may start new containers; removing a finalizer must pass.

    Only the update of a stored object says that it is going: whoever creates one may write that.
    """
    if review.operation not in _DECIDED_OPERATIONS or review.subresource not in _SUBRESOURCES:
        return False
    metadata = read_mapping((review.document or {}).get("metadata"))
    return review.operation != "UPDATE" or not metadata.get("deletionTimestamp")


def placement_matrix(snapshot: Snapshot, nodes: KnownNodes | None = None) -> PlacementMatrix:
    """Return the parts of a snapshot that decide about placement today."""
    targets = {name: document.spec for name, document in snapshot.documents.items()}
    return PlacementMatrix(targets, snapshot.waivers, clock.today().isoformat(), nodes)


def source_of(question: Question) -> str:
    """Return the source of a decision: the hook, and who placed the workload unless it matched."""
    return SOURCE if question.placed_by == "match" else f"{SOURCE}/{question.placed_by}"
