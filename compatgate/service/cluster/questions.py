"""Turn an object into the questions that decide about it, and exempt what may pass. Pure.

An exemption is by annotation or namespace, and always by a waiver that allows it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.components import check_count
from compatgate.core.matrix import Waiver
from compatgate.core.performance import MIB, BoundedCache
from compatgate.core.rule import Finding, Verdict
from compatgate.core.rules.caveats import exempted
from compatgate.core.stack import Stack, parse_stack, parse_stack_text
from compatgate.errors import BadInput
from compatgate.service.cluster.claims import NO_CLAIMS, KnownClaims, StatedClaims
from compatgate.service.cluster.kinds import Kinds, PodKind
from compatgate.service.cluster.landing import NOWHERE_KNOWN
from compatgate.service.cluster.matching import (
    MAX_PARTS,
    TARGET,
    find_pods,
    match_targets,
    terms_of,
)
from compatgate.service.cluster.placement import (
    ContainerWorkload,
    PlacedBy,
    Placement,
    PlacementMatrix,
    node_selection_of,
    other_targets,
    place_workload,
    slice_products,
)
from compatgate.service.cluster.pods import (
    GPU_ANNOTATION,
    Container,
    Pod,
    count_containers,
    declines_gpus,
    gpu_containers,
)

STACK_ANNOTATION = "compatgate.dev/stack"
"""Annotation: the stack of the images, ``cuda=12.4,cudnn=9.1.0``."""
WAIVER_ANNOTATION = "compatgate.dev/waiver"
"""Annotation: the waiver that exempts the object."""
MAX_CONTAINERS = 2000
"""Containers of one object; a pod that Kubernetes stores has some thousand at the very most."""
MAX_STATED = 1024
"""Components in the stated stacks of all pods of one object."""
_NAMED = 3
_NO_NAMESPACE = "the object is in no namespace and matches no target; its pods are decided later"
_BODY_BYTES = 16
"""Bytes that a parsed stack takes at most for each character of its text."""
_STATED: BoundedCache[str, Mapping[str, Any]] = BoundedCache(MIB)
"""Parsed stacks by their text: the replicas of a workload state the same one."""
_encode = msgspec.json.Encoder(order="deterministic").encode


class Question(Struct, frozen=True):
    """A question about a container on a target; equal containers share one question.

    Without a target it is bound for none. With a finding, which says what is wrong with where it is
    to run, the gate is not asked. ``waiver``: that the object names for its exemption.
    """

    target: str | None
    body: dict[str, Any]
    containers: tuple[str, ...]
    image: str = ""
    possible: bool = False
    waiver: str = ""
    finding: Finding | None = None
    placed_by: PlacedBy = "match"
    paths: tuple[str, ...] = ()

    @property
    def key(self) -> bytes:
        """Return a key that is equal for questions with the same answer."""
        return _encode([self.target, self.body, self.waiver, self.finding])

    @property
    def is_asked(self) -> bool:
        """Return whether the gate is asked."""
        return self.target is not None and self.finding is None


class Questions(Struct, frozen=True):
    """The questions of an object."""

    asked: tuple[Question, ...] = ()
    remarks: tuple[str, ...] = ()


def make_questions(
    document: Mapping[str, Any],
    kind: PodKind,
    namespace: str,
    kinds: Kinds,
    known: Callable[[], PlacementMatrix],
    claims: KnownClaims = NO_CLAIMS,
) -> Questions:
    """Return the questions of an object, empty where nothing in it asks for GPUs.

    ``known``: asked only where there is a GPU, so that nothing else depends on the database.
    """
    maker = _QuestionMaker(kind, namespace, kinds, known, claims)
    found = find_pods(document, kind, kinds)
    if not found.complete:
        maker.remarks.append(
            f"the object has more than {MAX_PARTS} parts; not all were searched for pods"
        )
    pods = list(found.pods)
    check_count(sum(map(count_containers, pods)), MAX_CONTAINERS, "containers", "request.object")
    for pod in pods:
        maker.add_pod(pod)
    return Questions(tuple(maker.asked.values()), tuple(dict.fromkeys(maker.remarks)))


class _QuestionMaker:
    """Collects the questions and remarks about the pods of one object; see `make_questions`."""

    def __init__(
        self,
        kind: PodKind,
        namespace: str,
        kinds: Kinds,
        known: Callable[[], PlacementMatrix],
        claims: KnownClaims,
    ) -> None:
        self.asked: dict[bytes, Question] = {}
        self.remarks: list[str] = []
        self._kind, self._namespace, self._kinds = kind, namespace, kinds
        self._known = known
        self._claims = StatedClaims(claims, kinds, namespace)
        self._stated_keys = 0

    def add_pod(self, pod: Pod) -> None:
        """Add the questions of a pod, if it asks for GPUs."""
        found = list(gpu_containers(pod, self._kinds, self._claims))
        if not found:
            return
        matrix, stated = self._known(), _stated_stack(pod)
        self._stated_keys += len(stated)
        field = f"annotation {STACK_ANNOTATION}"
        check_count(self._stated_keys, MAX_STATED, "components in all stacks", field)
        requested = {resource for one in found for resource in one.resources}
        tolerated = {resource for one in found for resource in one.requested}
        is_pod = self._kind.pod
        workload = _workload(pod, self._namespace, matrix, (requested, tolerated), is_pod=is_pod)
        places: dict[ContainerWorkload, list[Placement]] = {}
        for container in found:
            self.remarks += _remarks(container, stated, is_pod=is_pod)
            if container.image or stated or is_pod:
                asks = replace(workload, resources=container.resources, image=container.image)
                if asks not in places:
                    places[asks] = list(place_workload(asks, matrix))
                    if others := other_targets(asks, matrix):
                        shown = ", ".join(others[:_NAMED]) + ", ..." * (len(others) > _NAMED)
                        self.remarks.append(
                            f"{TARGET} chooses {asks.named}, and the pod may land on {shown} as"
                            f" well: select the nodes of {asks.named}"
                        )
                for place in places[asks]:
                    self._add(place, container, pod, stated, matrix)
        if declines_gpus(pod):
            self.remarks.append(
                f'{GPU_ANNOTATION}: "false" is ignored, the pod requests GPUs ({found[0].why})'
            )

    def _add(
        self,
        place: Placement,
        container: Container,
        pod: Pod,
        stated: Mapping[str, Any],
        matrix: PlacementMatrix,
    ) -> None:
        if self._kind.scope == "Cluster" and place.target is None and not place.finding:
            self.remarks.append(_NO_NAMESPACE)
            return
        spec = matrix.targets.get(place.target or "")
        counts = spec is None or spec.policy.stated_stacks != "ignore"
        if stated and not counts:
            self.remarks.append(
                f"the annotation {STACK_ANNOTATION} does not count on {place.target} "
                "(policy statedStacks: ignore): the image must be read"
            )
        question = _question(place, container, pod, stated if counts else {})
        known = self.asked.get(question.key)
        if known is not None:
            names = dict.fromkeys((*known.containers, *question.containers))
            paths = dict.fromkeys((*known.paths, *question.paths))
            question = replace(question, containers=tuple(names), paths=tuple(paths))
        self.asked[question.key] = question


def new_questions(new: Questions, old: Questions) -> Questions:
    """Return the questions that an update adds; running containers are not judged again."""
    known = {question.key for question in old.asked}
    return Questions(tuple(q for q in new.asked if q.key not in known), new.remarks)


def searched(questions: Questions, kind: str) -> Questions:
    """Add that an object was searched for pods, because its kind is not known."""
    known = f"compatgate: {kind or 'an object'} is not of a kind that compatgate knows"
    found = "its parts that look like pods are" if questions.asked else "no part of it is"
    said = f"{known} (serve --kinds); {found} checked as a GPU pod"
    return replace(questions, remarks=(said, *questions.remarks))


def _workload(
    pod: Pod,
    namespace: str,
    known: PlacementMatrix,
    asks_for: tuple[Collection[str], ...],
    *,
    is_pod: bool,
) -> ContainerWorkload:
    terms = list(terms_of(pod.spec))
    bound = match_targets(namespace, terms, known.targets)
    landing = NOWHERE_KNOWN
    if known.nodes is not None:
        wanted = bound.targets or bound.open
        landing = known.nodes.landing(namespace, pod.spec, asks_for[0], wanted, asks_for[1])
    return ContainerWorkload(
        pod.annotations.get(TARGET, "").strip(),
        bound,
        node_selection_of(terms),
        slice_products(terms),
        landing=landing,
        is_pod=is_pod,
    )


def _question(
    place: Placement, container: Container, pod: Pod, stated: Mapping[str, Any]
) -> Question:
    stack, left = dict(stated), list(container.changes.open)
    if not container.image and not stated:
        left.append("the container names no image, and no stack is stated")
    if left:
        stack["open"] = left
    if container.changes.unread:
        stack["unread"] = list(container.changes.unread)
    body: dict[str, Any] = {"target": place.target} if place.target else {}
    if place.pools:
        body["pools"] = list(place.pools)
    if stack:
        body["stack"] = stack
    if container.image:
        body["image"] = container.image
        if container.command is not None:
            body["command"] = list(container.command[:1])
        if container.mounts:
            body["mounts"] = list(container.mounts)
    if container.changes.set:
        body["set"] = container.changes.set
    return Question(
        place.target,
        body,
        (container.name,),
        container.image,
        place.possible,
        pod.annotations.get(WAIVER_ANNOTATION, "").strip(),
        place.finding,
        place.by,
        (container.path,),
    )


def _stated_stack(pod: Pod) -> Mapping[str, Any]:
    value = pod.annotations.get(STACK_ANNOTATION, "").strip()
    if not value:
        return {}
    if stored := _STATED.peek(value):
        return stored
    try:
        body = parse_stack_text(value)
        parse_stack(body)
    except BadInput as error:
        raise error.at(f"annotation {STACK_ANNOTATION}") from None
    _STATED.put(value, body, _BODY_BYTES * len(value))
    return body


def _remarks(container: Container, stated: Mapping[str, Any], *, is_pod: bool) -> Iterable[str]:
    if not container.sure:
        yield (
            f"container {container.name}: {container.why} is taken for a GPU; if it is none, "
            "an operator can exempt it by a waiver (CG822), or name it (serve --kinds)"
        )
    if not (container.image or stated or is_pod):
        yield (
            f"container {container.name} names no image here; its pod is decided when it is made"
        )


class Exemption(Struct, frozen=True):
    """Namespaces that the operator exempts by a waiver."""

    namespaces: str
    waiver: str


class ExemptionResult(Struct, frozen=True):
    """The waiver that exempts, or why the named one does not."""

    waiver: Waiver | None = None
    why_not: str = ""


def parse_exemptions(values: Sequence[str]) -> tuple[Exemption, ...]:
    """Read ``NAMESPACE=WAIVER``, the namespace a glob."""
    found = []
    for value in values:
        namespaces, _, waiver = (part.strip() for part in value.partition("="))
        if not namespaces or not waiver:
            hint = "NAMESPACE=WAIVER, like batch-*=night-run"
            raise BadInput(f"{value!r} exempts nothing", field="--exempt", value=value, hint=hint)
        found.append(Exemption(namespaces, waiver))
    return tuple(found)


def check_exemption(
    question: Question,
    verdict: Verdict | None,
    namespace: str,
    exemptions: Iterable[Exemption],
    waivers: Mapping[str, Waiver],
    today: str,
) -> ExemptionResult:
    """Check whether a waiver exempts a denied container."""
    names = [question.waiver] if question.waiver else []
    names += [e.waiver for e in exemptions if fnmatchcase(namespace, e.namespaces)]
    why_not = ""
    for name in names:
        waiver = waivers.get(name)
        if waiver is None:
            why_not = why_not or f"waiver {name!r} does not exist"
        elif problem := _problem(waiver, question, verdict, today):
            why_not = why_not or f"the waiver {name} {problem}"
        else:
            return ExemptionResult(waiver)
    return ExemptionResult(None, why_not)


def _problem(waiver: Waiver, question: Question, verdict: Verdict | None, today: str) -> str:
    if exempted.id not in waiver.rules:
        return f"does not name {exempted.id}, and exempts nothing"
    if today > waiver.expires:
        return f"ended on {waiver.expires}"
    image = (verdict.image if verdict else None) or question.image or None
    stack = parse_stack(verdict.stack, image=image) if verdict else Stack({}, image=image)
    every = (stack, *(replace(one, image=image) for one in stack.alternatives.values()))
    if not all(waiver.covers(question.target or "", one, today) for one in every):
        return "is for other targets, images or stacks"
    return ""
