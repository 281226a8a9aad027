"""Re-evaluate running GPU pods: each GPU container against its target as it is now."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any, Literal, Protocol

from msgspec import Struct

from compatgate.core.matrix import Waiver
from compatgate.core.rule import Verdict
from compatgate.documents.specs import TargetSpec
from compatgate.errors import BadInput, CompatgateError
from compatgate.kit.kubernetes import ClusterApi, read_labels, read_list, read_mapping, read_text
from compatgate.service.cluster import review
from compatgate.service.cluster.admission import UnmatchedPolicy, open_stack
from compatgate.service.cluster.claims import KnownClaims, no_claims
from compatgate.service.cluster.kinds import Kinds, PodKind
from compatgate.service.cluster.placement import PRODUCT, STRATEGY, PlacementMatrix
from compatgate.service.cluster.pods import gpu_containers, pods_of
from compatgate.service.cluster.questions import (
    Exemption,
    Question,
    check_exemption,
    make_questions,
)

POD = PodKind("Pod", "pods", pod=True)
_ENDED_PHASES = ("Succeeded", "Failed")
_SELECTOR = ",".join(f"status.phase!={phase}" for phase in _ENDED_PHASES)
_PULLED = re.compile(r"(?:[a-z-]+://)?([^@\s]+@sha256:[0-9a-f]{64})")
_LONGEST_MESSAGE = 1000
_ABSENT_VALUE = "\0"
"""A value that no label has."""
_KEPT = ("nodeSelector", "affinity", "resourceClaims", "runtimeClassName", "volumes")
_LISTS = {
    "containers": "containerStatuses",
    "initContainers": "initContainerStatuses",
    "ephemeralContainers": "ephemeralContainerStatuses",
}


class RunningPod(Struct, frozen=True):
    """A pod that has a node and asks for GPUs.

    ``document``: metadata's annotations and the spec, images as they were pulled.
    """

    namespace: str
    name: str
    node: str
    document: Mapping[str, Any]


def list_running_pods(
    api: ClusterApi, kinds: Kinds, namespace: str | None = None, excluded: Collection[str] = ()
) -> list[RunningPod]:
    """Return the GPU pods of a cluster, or of one namespace, by namespace and name.

    ``namespace``: only this one, whether it is excluded or not.
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
    metadata, spec = read_mapping(body.get("metadata")), read_mapping(body.get("spec"))
    status, node = read_mapping(body.get("status")), read_text(spec.get("nodeName"))
    if not node or status.get("phase") in _ENDED_PHASES:
        return None
    document = {
        "metadata": {"annotations": read_labels(metadata.get("annotations"))},
        "spec": _use_pulled_images(spec, status),
    }
    with suppress(BadInput):  # what its annotation means is not known; the audit says so
        if not any(True for pod in pods_of(document, POD) for _ in gpu_containers(pod, kinds)):
            return None
    namespace, name = (read_text(metadata.get(key)) for key in ("namespace", "name"))
    return RunningPod(namespace, name, node, document)


def place_on_node(
    pod: RunningPod, labels: Mapping[str, str] | None, keys: Iterable[str]
) -> Mapping[str, Any]:
    """Return the pod, placed on its node: the node's labels replace its node selector.

    ``labels``: labels of its node; None: not known, so the pod's own selection counts.
    """
    if labels is None:
        return pod.document
    selected = {key: labels.get(key, _ABSENT_VALUE) for key in keys}
    spec = {**pod.document["spec"], "nodeSelector": selected, "affinity": {}}
    return {**pod.document, "spec": spec}


def _use_pulled_images(spec: Mapping[str, Any], status: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec with the running images by digest, if the node reports them."""
    whole = {key: spec[key] for key in _KEPT if key in spec}
    for part, told in _LISTS.items():
        pulled = {
            read_text(one.get("name")): found[1]
            for one in map(read_mapping, read_list(status.get(told)))
            if (found := _PULLED.fullmatch(read_text(one.get("imageID"))))
        }
        containers = [read_mapping(container) for container in read_list(spec.get(part))]
        whole[part] = [
            {**c, "image": pulled.get(read_text(c.get("name")), read_text(c.get("image")))}
            for c in containers
        ]
    return whole


Outcome = Literal["pass", "fail", "warn", "error", "skip"]
_NOT_ASKED = (401, 403)
"""Statuses of a refusal that does not depend on the question."""
_UNMATCHED: dict[UnmatchedPolicy, Outcome] = {"allow": "skip", "warn": "warn", "deny": "fail"}


class Gatekeeper(Protocol):
    """A source of the matrix and of verdicts: a gate over REST, or a database."""

    def targets(self) -> Mapping[str, TargetSpec]:
        """Return the match of each target, by name."""
        ...

    def waivers(self) -> Mapping[str, Waiver]:
        """Return waivers by name."""
        ...

    def decide(self, body: dict[str, Any]) -> Verdict:
        """Decide without logging the decision."""
        ...


class AuditOptions(Struct, frozen=True):
    """The operator's options, as for the admission webhook.

    ``claims``: by namespace; those that are not among them count as GPUs.
    """

    kinds: Kinds
    unmatched: UnmatchedPolicy = "warn"
    exemptions: tuple[Exemption, ...] = ()
    claims: Callable[[str], KnownClaims] = no_claims


class PodResult(Struct, frozen=True):
    """The result of an audit of containers of a pod on one target, with the rule that decided."""

    pod: RunningPod
    containers: tuple[str, ...]
    image: str
    target: str
    outcome: Outcome
    rule: str
    message: str
    verdict: str = ""
    mode: str = ""


def audit_pods(
    pods: Iterable[RunningPod],
    labels: Mapping[str, Mapping[str, str]],
    decider: Gatekeeper,
    options: AuditOptions,
    today: str,
) -> list[PodResult]:
    """Decide about every pod; equal containers share one question."""
    matrix = PlacementMatrix(decider.targets(), decider.waivers(), today)
    stated = {key for spec in matrix.targets.values() for key in spec.match.node_labels}
    keys = {PRODUCT, STRATEGY, *stated}
    known: dict[bytes, Verdict | CompatgateError] = {}
    found: list[PodResult] = []
    for pod in pods:
        document = place_on_node(pod, labels.get(pod.node), keys)
        try:
            claims = options.claims(pod.namespace)
            asked = make_questions(
                document, POD, pod.namespace, options.kinds, lambda: matrix, claims
            )
        except CompatgateError as error:
            found.append(PodResult(pod, (), "", "", "error", "", error.detail))
            continue
        for question in asked.asked:
            answer = _answer_question(question, decider, known)
            found.append(_weigh(pod, question, answer, options, matrix))
    return found


def _answer_question(
    question: Question, decider: Gatekeeper, known: dict[bytes, Verdict | CompatgateError]
) -> Verdict | CompatgateError | None:
    if not question.is_asked:
        return None
    if question.key not in known:
        try:
            known[question.key] = _decide(question.body, decider.decide)
        except CompatgateError as error:
            if error.status >= 500 or error.status in _NOT_ASKED:
                raise
            known[question.key] = error
    return known[question.key]


def _decide(body: dict[str, Any], decide: Callable[[dict[str, Any]], Verdict]) -> Verdict:
    """Return the verdict; an unreadable image leaves the stack open, and so unknown."""
    try:
        return decide(body)
    except CompatgateError as error:
        away = error.status >= 500 and not (error.field or "").startswith("image")
        if "image" not in body or away or error.status in _NOT_ASKED:
            raise
        rest = {key: value for key, value in body.items() if key != "image"}
        return decide(open_stack(rest, error))


def _weigh(
    pod: RunningPod,
    question: Question,
    answer: Verdict | CompatgateError | None,
    options: AuditOptions,
    matrix: PlacementMatrix,
) -> PodResult:
    finding = question.finding
    if finding is not None and finding.outcome != "fail":
        said = review.placement_warning(question, finding, most=_LONGEST_MESSAGE)
        return _result(pod, question, "warn", said.removeprefix("compatgate: "))
    about = review.describe_containers(question)
    if isinstance(answer, CompatgateError):
        return _result(pod, question, "error", f"{about}: {answer.detail}")
    if answer is not None and answer.verdict == "pass":
        return _result(pod, question, "pass", f"{about} may run on {answer.target}", answer)
    if answer is not None and answer.allowed:  # the target's mode admits it
        lines = review.verdict_warnings(question, answer, most=_LONGEST_MESSAGE)
        said = "; ".join(line.removeprefix("compatgate: ") for line in lines)
        said = said or f"the verdict is {answer.verdict}"
        return _result(pod, question, "warn", said, answer)
    found = check_exemption(
        question, answer, pod.namespace, options.exemptions, matrix.waivers, matrix.today
    )
    if found.waiver:
        said = review.exemption_message(question, found.waiver, answer).removeprefix("compatgate: ")
        return _result(pod, question, "skip", said, answer)
    if finding is not None:
        said = review.placement_denial(question, finding, found.why_not)
        return _result(pod, question, "fail", said)
    if answer is None:
        said = review.unmatched_message(question, (), found.why_not)
        return _result(pod, question, _UNMATCHED[options.unmatched], said)
    said = review.denial_message(question, answer, "", found.why_not)
    return _result(pod, question, "error" if answer.verdict == "unknown" else "fail", said, answer)


def _result(
    pod: RunningPod,
    question: Question,
    outcome: Outcome,
    message: str,
    verdict: Verdict | None = None,
) -> PodResult:
    finding = review.leading_finding(verdict) if verdict else question.finding
    return PodResult(
        pod,
        question.containers,
        question.image,
        question.target or "",
        outcome,
        finding.rule if finding and outcome != "pass" else "",
        message,
        verdict.id if verdict else "",
        verdict.mode if verdict else "",
    )
