"""What runs, decided again: each GPU container of each pod against its target as it is now."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, Protocol

from msgspec import Struct

from compatgate.core.matrix import Waiver
from compatgate.core.verdict import Verdict
from compatgate.documents.specs import TargetSpec
from compatgate.errors import CompatgateError
from compatgate.gate.admission import words
from compatgate.gate.admission.admit import Unmatched
from compatgate.gate.admission.exemptions import Exemption, exempt
from compatgate.gate.admission.kinds import Kinds
from compatgate.gate.admission.placement import Known
from compatgate.gate.admission.questions import Question, questions_of
from compatgate.gate.admission.slices import PRODUCT, STRATEGY
from compatgate.gate.cluster.pods import POD, RunningPod, placed

Outcome = Literal["pass", "fail", "warn", "error", "skip"]
"""As a PolicyReport has them."""
_NOT_ASKED = (401, 403)
"""Statuses of a refusal that says nothing about the question."""
_UNMATCHED: dict[Unmatched, Outcome] = {"allow": "skip", "warn": "warn", "deny": "fail"}


class Decider(Protocol):
    """Who knows the matrix: a gate over REST, or a database."""

    def targets(self) -> Mapping[str, TargetSpec]:
        """Return what each target states, by name."""
        ...

    def waivers(self) -> Mapping[str, Waiver]:
        """Waivers by name."""
        ...

    def decide(self, body: dict[str, Any]) -> Verdict:
        """The verdict, which is not logged.

        Raises:
            Unavailable: nothing can be decided now.
            CompatgateError: the question cannot be asked so.
        """
        ...


class AuditOptions(Struct, frozen=True):
    """What the operator chose, as for the admission webhook.

    Attributes:
        kinds: which resources are GPUs.
        unmatched: what becomes of a pod that is bound for no target.
        exemptions: namespaces, each by a waiver.
    """

    kinds: Kinds
    unmatched: Unmatched = "warn"
    exemptions: tuple[Exemption, ...] = ()


class Result(Struct, frozen=True):
    """What was found about containers of a pod on one target.

    Attributes:
        rule: that decided; empty where none did.
        message: one line.
        verdict: id; empty: there is none.
    """

    pod: RunningPod
    containers: tuple[str, ...]
    image: str
    target: str
    outcome: Outcome
    rule: str
    message: str
    verdict: str = ""
    mode: str = ""
    scored: bool = True


def audit(
    pods: Iterable[RunningPod],
    labels: Mapping[str, Mapping[str, str]],
    decider: Decider,
    options: AuditOptions,
    today: str,
) -> list[Result]:
    """Decide about every pod; containers that are alike are asked about once.

    Args:
        pods: that run.
        labels: of nodes, by name.
        decider: knows the matrix.
        options: of the operator.
        today: ISO date.

    Raises:
        CompatgateError: nothing can be decided, or whoever asks may not ask; then nothing is said
            about any pod.
    """
    matrix = Known(decider.targets(), decider.waivers(), today)
    stated = {key for spec in matrix.targets.values() for key in spec.match.node_labels}
    keys = {PRODUCT, STRATEGY, *stated}
    known: dict[bytes, Verdict | CompatgateError] = {}
    found: list[Result] = []
    for pod in pods:
        document = placed(pod, labels.get(pod.node), keys)
        try:
            asked = questions_of(document, POD, pod.namespace, options.kinds, lambda: matrix)
        except CompatgateError as error:
            found.append(_unasked(pod, error.detail))
            continue
        for question in asked.asked:
            answer = _answer(question, decider, known)
            found.append(_weigh(pod, question, answer, options, matrix))
    return found


def _answer(
    question: Question, decider: Decider, known: dict[bytes, Verdict | CompatgateError]
) -> Verdict | CompatgateError | None:
    if not question.is_asked:
        return None
    if question.key not in known:
        try:
            known[question.key] = _decided(question.body, decider.decide)
        except CompatgateError as error:
            if error.status >= 500 or error.status in _NOT_ASKED:
                raise
            known[question.key] = error
    return known[question.key]


def _decided(body: dict[str, Any], decide: Callable[[dict[str, Any]], Verdict]) -> Verdict:
    """The verdict; an image that cannot be read leaves the stack open, and so unknown."""
    try:
        return decide(body)
    except CompatgateError as error:
        away = error.status >= 500 and not _of_image(error)
        if "image" not in body or away or error.status in _NOT_ASKED:
            raise
        stack = body.get("stack", {})
        left = [*stack.get("open", ()), f"the image is not known: {error.problem}"]
        rest = {key: value for key, value in body.items() if key != "image"}
        return decide({**rest, "stack": {**stack, "open": left}})


def _of_image(error: CompatgateError) -> bool:
    return (error.field or "").startswith("image")


def _weigh(
    pod: RunningPod,
    question: Question,
    answer: Verdict | CompatgateError | None,
    options: AuditOptions,
    matrix: Known,
) -> Result:
    finding = question.finding
    if finding is not None and finding.outcome != "fail":
        said = words.placed(question, finding).removeprefix("compatgate ")
        return _result(pod, question, "warn", said.removeprefix("compatgate: "))
    if isinstance(answer, CompatgateError):
        return _result(pod, question, "error", f"{words.about(question)}: {answer.detail}")
    if answer is not None and answer.allowed:
        return _allowed(pod, question, answer)
    found = exempt(
        question, answer, pod.namespace, options.exemptions, matrix.waivers, matrix.today
    )
    if found.waiver:
        said = words.exempted(question, found.waiver, answer).removeprefix("compatgate: ")
        return _result(pod, question, "skip", said, answer)
    if finding is not None:
        return _result(pod, question, "fail", words.misplaced(question, finding, found.why_not))
    if answer is None:
        said = words.unmatched(question, (), found.why_not)
        return _result(pod, question, _UNMATCHED[options.unmatched], said)
    said = words.denial(question, answer, "", found.why_not)
    return _result(pod, question, "error" if answer.verdict == "unknown" else "fail", said, answer)


def _allowed(pod: RunningPod, question: Question, verdict: Verdict) -> Result:
    """A pass, or something wrong that the target's mode lets run."""
    if verdict.verdict == "pass":
        said = f"{words.about(question)} may run on {verdict.target}"
        return _result(pod, question, "pass", said, verdict)
    said = "; ".join(words.warnings(question, verdict)) or f"the verdict is {verdict.verdict}"
    return _result(pod, question, "warn", said.removeprefix("compatgate "), verdict)


def _result(
    pod: RunningPod,
    question: Question,
    outcome: Outcome,
    message: str,
    verdict: Verdict | None = None,
) -> Result:
    finding = words.leading(verdict) if verdict else question.finding
    return Result(
        pod,
        question.containers,
        question.image,
        question.target or "",
        outcome,
        finding.rule if finding and outcome != "pass" else "",
        message,
        verdict.id if verdict else "",
        verdict.mode if verdict else "",
        outcome in ("pass", "fail", "error"),
    )


def _unasked(pod: RunningPod, why: str) -> Result:
    return Result(pod, (), "", "", "error", "", why)
