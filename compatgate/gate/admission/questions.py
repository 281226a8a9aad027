"""From an object to the questions that decide about it; pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from compatgate.core.stack import parse_stack, parse_stack_text
from compatgate.documents.specs import MatchSpec
from compatgate.errors import BadInput
from compatgate.gate.admission.bound import Bound, bound_for
from compatgate.gate.admission.kinds import Kinds, PodKind
from compatgate.gate.admission.pods import Container, Pod, gpu_containers, pods_of

STACK = "compatgate.dev/stack"
"""Annotation: what is in the images, ``cuda=12.4,cudnn=9.1.0``."""
WAIVER = "compatgate.dev/waiver"
"""Annotation: the waiver that exempts the object."""
Matches = Callable[[], Iterable[tuple[str, MatchSpec]]]
"""Gives what each target states of the workloads that are bound for it, by name."""
_encode = msgspec.json.Encoder(order="deterministic").encode


class Question(Struct, frozen=True):
    """A container on a target; containers that are alike ask once.

    Attributes:
        target: None: it is bound for none.
        body: as ``POST /gate`` takes it.
        containers: names of the containers that it is about.
        possible: nothing says that it runs on this target, nor that it does not.
        waiver: that the object names for its exemption.
    """

    target: str | None
    body: dict[str, Any]
    containers: tuple[str, ...]
    image: str = ""
    possible: bool = False
    waiver: str = ""

    @property
    def key(self) -> bytes:
        """Equal for questions that have the same answer."""
        return _encode([self.target, self.body, self.waiver])


class Questions(Struct, frozen=True):
    """What an object asks.

    Attributes:
        asked: in the order of the containers.
        remarks: what whoever made the object should know.
    """

    asked: tuple[Question, ...] = ()
    remarks: tuple[str, ...] = ()


def questions_of(
    document: Mapping[str, Any],
    kind: PodKind,
    namespace: str,
    kinds: Kinds,
    matches: Matches,
) -> Questions:
    """The questions of an object, empty where nothing in it asks for GPUs.

    Args:
        document: the object.
        kind: of it.
        namespace: it is in.
        kinds: knows which resources are GPUs.
        matches: asked only where there is a GPU, so that nothing else depends on the database.

    Raises:
        BadInput: an annotation of ours is malformed; names it.
    """
    asked: dict[bytes, Question] = {}
    remarks: list[str] = []
    for pod in pods_of(document, kind):
        found = list(gpu_containers(pod, kinds))
        if not found:
            continue
        bound = bound_for(pod.annotations, namespace, pod.spec, matches())
        stated = _stated(pod)
        for container in found:
            remarks += _remarks(container, stated, is_pod=kind.pod)
            if container.image or stated or kind.pod:
                for question in _of_container(container, pod, bound, stated):
                    _add(asked, question)
    return Questions(tuple(asked.values()), tuple(dict.fromkeys(remarks)))


def fresh(new: Questions, old: Questions) -> Questions:
    """What an update asks that was not asked before: what runs already is not held up again."""
    known = {question.key for question in old.asked}
    return Questions(tuple(q for q in new.asked if q.key not in known), new.remarks)


def _add(asked: dict[bytes, Question], question: Question) -> None:
    known = asked.get(question.key)
    names = dict.fromkeys((*(known.containers if known else ()), *question.containers))
    asked[question.key] = msgspec.structs.replace(question, containers=tuple(names))


def _of_container(
    container: Container, pod: Pod, bound: Bound, stated: Mapping[str, Any]
) -> Iterable[Question]:
    stack = dict(stated)
    if left := _left(container, stated):
        stack["open"] = left
    if container.changes.unread:
        stack["unread"] = list(container.changes.unread)
    body: dict[str, Any] = {"stack": stack} if stack else {}
    if container.image:
        body["image"] = container.image
    if container.changes.set:
        body["set"] = container.changes.set
    waiver = pod.annotations.get(WAIVER, "").strip()
    for target in bound.targets or (None,):
        yield Question(
            target,
            {"target": target, **body} if target else body,
            (container.name,),
            container.image,
            bound.how == "possible",
            waiver,
        )


def _left(container: Container, stated: Mapping[str, Any]) -> list[str]:
    left = list(container.changes.open)
    if not container.image and not stated:
        left.append("the container names no image, and no stack is stated")
    return left


def _stated(pod: Pod) -> Mapping[str, Any]:
    value = pod.annotations.get(STACK, "").strip()
    if not value:
        return {}
    try:
        body = parse_stack_text(value)
        parse_stack(body)
    except BadInput as error:
        raise error.at(f"annotation {STACK}") from None
    return body


def _remarks(container: Container, stated: Mapping[str, Any], *, is_pod: bool) -> Iterable[str]:
    if not container.sure:
        yield (
            f"container {container.name}: {container.why} is taken for a GPU; "
            'if it is none, annotate compatgate.dev/gpu: "false"'
        )
    if not (container.image or stated or is_pod):
        yield (
            f"container {container.name} names no image here; its pod is decided when it is made"
        )
