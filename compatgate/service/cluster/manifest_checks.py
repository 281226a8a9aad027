"""Answer for one object as admission would, without logging anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from compatgate.core.rule import Verdict
from compatgate.errors import BadInput, CompatgateError, Unavailable
from compatgate.kit import clock
from compatgate.kit.kubernetes import read_mapping, read_text
from compatgate.service.cluster.admission import (
    Admission,
    AdmissionOptions,
    PreviewGate,
    ReviewContext,
)
from compatgate.service.cluster.claims import read_claims
from compatgate.service.cluster.kinds import Kinds
from compatgate.service.cluster.manifests import is_cluster_wide, names_gpus
from compatgate.service.cluster.review import (
    QuestionResult,
    Review,
    ReviewAnswer,
    parse_timeout,
)
from compatgate.service.cluster.schemas import ObjectAnswer, ObjectResult
from compatgate.service.gate.decisions.outages import Degraded
from compatgate.service.gate.questions.decider import decide
from compatgate.service.matrix.snapshots.snapshot import Snapshot

if TYPE_CHECKING:
    from compatgate.service.gate.questions.images import Images

Json = dict[str, Any]
_UNAVAILABLE = 503


class ManifestChecks:
    """Asks admission about objects that no cluster has seen.

    ``options``: of admission; what it does when nothing can be decided does not count here.
    """

    def __init__(self, gate: PreviewGate, options: AdmissionOptions) -> None:
        self._kinds: Kinds = options.kinds
        self._left_out = {one.name: one.reason for one in self._kinds.file.excluded_namespaces}
        self._admission = Admission(gate, replace(options, on_failure="deny"))

    def check(
        self,
        document: Mapping[str, Any],
        namespace: str,
        *,
        timeout: str = "",
        permit: Callable[[Json], None] = lambda _: None,
        claims: Sequence[Mapping[str, Any]] = (),
    ) -> ObjectAnswer:
        """Return the answer for an object that would be created now.

        ``permit`` raises if the caller may not ask a question. ``claims`` are created with the
        object; those of other namespaces do not count.
        """
        review = _review(document, namespace, self._kinds)
        refused: list[CompatgateError] = []

        def check_question(question: Json) -> None:
            try:
                permit(question)
            except CompatgateError as error:
                refused.append(error)
                raise

        asked = ReviewContext(
            "",
            parse_timeout(timeout),
            lambda _: "",
            lambda *_: None,
            check_question,
            claims=read_claims(claims, review.namespace) if claims else None,
        )
        answer = self._admission.answer(review, asked)
        if refused:
            raise refused[0]
        known = self._kinds.of(review.group, review.kind) is not None
        if answer.allowed and not (
            known or answer.results or names_gpus(document, self._kinds.is_gpu)
        ):
            return ObjectAnswer(True, "", (), False, ())
        found = _to_answer(answer)
        left_out = self._left_out.get(review.namespace)
        if left_out is None or not found.uses_gpus:
            return found
        what = (
            f"the webhook leaves out namespace {review.namespace}, nothing was checked: {left_out}"
        )
        return ObjectAnswer(True, "", (what,), True, ())


def _review(document: Mapping[str, Any], namespace: str, kinds: Kinds) -> Review:
    version, kind = (read_text(document.get(key)) for key in ("apiVersion", "kind"))
    for key, said in (("apiVersion", version), ("kind", kind)):
        if not said:
            hint = "send the object with apiVersion, kind and metadata"
            raise BadInput("is missing", field=f"object.{key}", hint=hint)
    group, slash, _ = version.rpartition("/")
    group = group if slash else ""
    own = read_text(read_mapping(document.get("metadata")).get("namespace"))
    where = "" if is_cluster_wide(group, kind, kinds) else own or namespace
    return Review("", "CREATE", group, kind, "", where, True, document, None)


def _to_answer(answer: ReviewAnswer) -> ObjectAnswer:
    if answer.code == _UNAVAILABLE:
        raise Unavailable(answer.message, hint="ask again")
    remarks = answer.remarks if answer.results else answer.warnings
    return ObjectAnswer(
        answer.allowed,
        answer.message,
        tuple(remarks),
        bool(answer.results or remarks or not answer.allowed),
        tuple(map(_to_result, answer.results)),
    )


def _to_result(result: QuestionResult) -> ObjectResult:
    question = result.question
    return ObjectResult(
        question.containers,
        question.paths,
        question.image,
        question.target,
        result.outcome,
        result.messages,
        question.finding.to_json() if question.finding else None,
        result.waiver.name if result.waiver else None,
        result.verdict.to_json() if result.verdict else None,
    )


class BundleGate:
    """Decides with a bundle; nothing is logged.

    ``images``: reads images of the allowed registries; None: images are labels.
    """

    def __init__(self, snapshot: Snapshot, images: Images | None) -> None:
        self._snapshot = snapshot
        self._images = images

    def snapshot(self) -> Snapshot:
        """Return the matrix of the bundle."""
        return self._snapshot

    def preview(self, body: Mapping[str, Any], *, image_s: float | None = None) -> Verdict:
        """Return the verdict on a question, with the stack of its image where that may be read."""
        by_image = False
        if self._images is not None and image_s != 0:
            completed = self._images.complete(body, self._snapshot, image_s)
            body, by_image = completed.body, completed.alone
        return decide(body, self._snapshot, clock.now(), by_image=by_image)

    def degraded(self) -> Degraded | None:
        """Return None: a bundle needs no database."""
        return None
