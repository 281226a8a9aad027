"""Re-evaluate running GPU pods: each GPU container against its target as it is now."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Literal, Protocol

from msgspec import Struct

from compatgate.core.matrix import Waiver
from compatgate.core.verdict import Verdict
from compatgate.documents.specs import TargetSpec
from compatgate.errors import BadInput, CompatgateError
from compatgate.service.admission import review
from compatgate.service.admission.fields import items, mapping, text, texts
from compatgate.service.admission.kinds import Kinds, PodKind
from compatgate.service.admission.placement import PRODUCT, STRATEGY, Known
from compatgate.service.admission.pods import gpu_containers, pods_of
from compatgate.service.admission.questions import Exemption, Question, exempt, questions_of
from compatgate.service.admission.service import Unmatched
from compatgate.service.cluster.connection import Api

POD = PodKind("Pod", "pods", pod=True)
_OVER = ("Succeeded", "Failed")
_SELECTOR = ",".join(f"status.phase!={phase}" for phase in _OVER)
_PULLED = re.compile(r"(?:[a-z-]+://)?([^@\s]+@sha256:[0-9a-f]{64})")
_ABSENT = "\0"
"""A value that no label has."""
_KEPT = ("nodeSelector", "affinity", "resourceClaims", "runtimeClassName", "volumes")
_LISTS = {
    "containers": "containerStatuses",
    "initContainers": "initContainerStatuses",
    "ephemeralContainers": "ephemeralContainerStatuses",
}


class RunningPod(Struct, frozen=True):
    """A pod that has a node and asks for GPUs.

    Attributes:
        document: metadata's annotations and the spec, images as they were pulled.
    """

    namespace: str
    name: str
    uid: str
    node: str
    document: Mapping[str, Any]


def running_pods(
    api: Api, kinds: Kinds, namespace: str | None = None, excluded: Collection[str] = ()
) -> list[RunningPod]:
    """Return the GPU pods of a cluster, or of one namespace, by namespace and name.

    Args:
        api: of the cluster.
        kinds: which resources are GPUs.
        namespace: only this one, whether it is excluded or not.
        excluded: namespaces to skip.

    Raises:
        CompatgateError: as `Api.ask`; then the whole list is unknown.
    """

    def keep(body: dict[str, Any]) -> RunningPod | None:
        found = pod_of(body, kinds)
        return None if found and not namespace and found.namespace in excluded else found

    operation = "list_namespaced_pod" if namespace else "list_pod_for_all_namespaces"
    args = (namespace,) if namespace else ()
    found = api.listed("core", operation, *args, keep=keep, field_selector=_SELECTOR)
    return sorted(found, key=lambda pod: (pod.namespace, pod.name))


def pod_of(body: Mapping[str, Any], kinds: Kinds) -> RunningPod | None:
    """Read a running GPU pod from a Pod object; None: it does not run, or uses no GPU."""
    metadata, spec = mapping(body.get("metadata")), mapping(body.get("spec"))
    status, node = mapping(body.get("status")), text(spec.get("nodeName"))
    if not node or status.get("phase") in _OVER:
        return None
    document = {
        "metadata": {"annotations": texts(metadata.get("annotations"))},
        "spec": _pulled(spec, status),
    }
    if not _uses_gpus(document, kinds):
        return None
    namespace, name, uid = (text(metadata.get(key)) for key in ("namespace", "name", "uid"))
    return RunningPod(namespace, name, uid, node, document)


def _uses_gpus(document: Mapping[str, Any], kinds: Kinds) -> bool:
    try:
        return any(True for pod in pods_of(document, POD) for _ in gpu_containers(pod, kinds))
    except BadInput:  # what its annotation means is not known; the audit says so
        return True


def placed(
    pod: RunningPod, labels: Mapping[str, str] | None, keys: Iterable[str]
) -> Mapping[str, Any]:
    """Return the pod, placed on its node: the node's labels replace its node selector.

    Args:
        pod: a running pod.
        labels: labels of its node; None: not known, so the pod's own selection counts.
        keys: label keys that targets match; a key that the node lacks excludes them.
    """
    if labels is None:
        return pod.document
    selected = {key: labels.get(key, _ABSENT) for key in keys}
    spec = {**pod.document["spec"], "nodeSelector": selected, "affinity": {}}
    return {**pod.document, "spec": spec}


def _pulled(spec: Mapping[str, Any], status: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec with the running images by digest, if the node reports them."""
    whole = {key: spec[key] for key in _KEPT if key in spec}
    for part, told in _LISTS.items():
        pulled = {
            text(one.get("name")): found[1]
            for one in map(mapping, items(status.get(told)))
            if (found := _PULLED.fullmatch(text(one.get("imageID"))))
        }
        containers = [mapping(container) for container in items(spec.get(part))]
        whole[part] = [
            {**c, "image": pulled.get(text(c.get("name")), text(c.get("image")))}
            for c in containers
        ]
    return whole


Outcome = Literal["pass", "fail", "warn", "error", "skip"]
"""Outcomes of a PolicyReport."""
_NOT_ASKED = (401, 403)
"""Statuses of a refusal that does not depend on the question."""
_UNMATCHED: dict[Unmatched, Outcome] = {"allow": "skip", "warn": "warn", "deny": "fail"}


class Gatekeeper(Protocol):
    """A source of the matrix and of verdicts: a gate over REST, or a database."""

    def targets(self) -> Mapping[str, TargetSpec]:
        """Return the match of each target, by name."""
        ...

    def waivers(self) -> Mapping[str, Waiver]:
        """Return waivers by name."""
        ...

    def decide(self, body: dict[str, Any]) -> Verdict:
        """Decide without logging the decision.

        Raises:
            Unavailable: the gate cannot decide now.
            CompatgateError: the gate refuses the question.
        """
        ...


class AuditOptions(Struct, frozen=True):
    """The operator's options, as for the admission webhook.

    Attributes:
        kinds: which resources are GPUs.
        unmatched: result for a pod that matches no target.
        exemptions: namespaces, each by a waiver.
    """

    kinds: Kinds
    unmatched: Unmatched = "warn"
    exemptions: tuple[Exemption, ...] = ()


class Result(Struct, frozen=True):
    """The result of an audit of containers of a pod on one target.

    Attributes:
        rule: the deciding rule; empty: no rule decided.
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
    decider: Gatekeeper,
    options: AuditOptions,
    today: str,
) -> list[Result]:
    """Decide about every pod; equal containers share one question.

    Args:
        pods: running GPU pods.
        labels: of nodes, by name.
        decider: source of the matrix and of verdicts.
        options: of the operator.
        today: ISO date.

    Raises:
        CompatgateError: nothing can be decided, or the caller lacks the scope; no result is made
            for any pod.
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
    question: Question, decider: Gatekeeper, known: dict[bytes, Verdict | CompatgateError]
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
    """Return the verdict; an unreadable image leaves the stack open, and so unknown."""
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
        said = review.placed(question, finding).removeprefix("compatgate ")
        return _result(pod, question, "warn", said.removeprefix("compatgate: "))
    if isinstance(answer, CompatgateError):
        return _result(pod, question, "error", f"{review.about(question)}: {answer.detail}")
    if answer is not None and answer.allowed:
        return _allowed(pod, question, answer)
    found = exempt(
        question, answer, pod.namespace, options.exemptions, matrix.waivers, matrix.today
    )
    if found.waiver:
        said = review.exempted(question, found.waiver, answer).removeprefix("compatgate: ")
        return _result(pod, question, "skip", said, answer)
    if finding is not None:
        return _result(pod, question, "fail", review.misplaced(question, finding, found.why_not))
    if answer is None:
        said = review.unmatched(question, (), found.why_not)
        return _result(pod, question, _UNMATCHED[options.unmatched], said)
    said = review.denial(question, answer, "", found.why_not)
    return _result(pod, question, "error" if answer.verdict == "unknown" else "fail", said, answer)


def _allowed(pod: RunningPod, question: Question, verdict: Verdict) -> Result:
    """Return a pass, or a finding that the target's mode admits."""
    if verdict.verdict == "pass":
        said = f"{review.about(question)} may run on {verdict.target}"
        return _result(pod, question, "pass", said, verdict)
    said = "; ".join(review.warnings(question, verdict)) or f"the verdict is {verdict.verdict}"
    return _result(pod, question, "warn", said.removeprefix("compatgate "), verdict)


def _result(
    pod: RunningPod,
    question: Question,
    outcome: Outcome,
    message: str,
    verdict: Verdict | None = None,
) -> Result:
    finding = review.leading(verdict) if verdict else question.finding
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
