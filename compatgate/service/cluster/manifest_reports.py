"""Turn admission's answers into answers of report formats, with findings at lines of manifests.

Where no stack was judged (a placement that cannot be, no target, an annotation that cannot be
read), the finding makes an answer of its own in the form of a verdict without an id.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.evaluate import format_moment
from compatgate.core.rule import (
    OUTCOME_RANK,
    REFUSING,
    Checked,
    FindingOutcome,
    Outcome,
    Rule,
    Verdict,
)
from compatgate.core.rules.caveats import admission_note, exempted
from compatgate.core.stack import canonical_key, parse_stack_text
from compatgate.documents.sources import FieldPath
from compatgate.errors import BadInput
from compatgate.formats.ci import relative_path
from compatgate.formats.reports import Answer, Place
from compatgate.kit import clock
from compatgate.kit.kubernetes import read_text, to_one_line
from compatgate.service.cluster.admission import UnmatchedPolicy
from compatgate.service.cluster.manifest_checks import Json
from compatgate.service.cluster.manifests import Manifest, mappings
from compatgate.service.cluster.questions import STACK_ANNOTATION
from compatgate.service.cluster.review import OPEN_IMAGE_NEED
from compatgate.service.cluster.schemas import ObjectAnswer, ObjectResult, ReviewResult

_CONTAINER = re.compile(r"\bcontainer ([a-z0-9-]+)")
_ANNOTATION = re.compile(r"\bcompatgate\.dev/[a-z]+")
_CONTAINER_KEYS = frozenset(("image", "resources", "env", "command", "args"))
_MAX_NAMES = 5
_LONGEST = 1500
_NO_MATCH = "uses GPUs and matches no target, so nothing was checked"


class CheckedManifest(Struct, frozen=True):
    """An object and its answer.

    ``undecided``: why nothing could be decided; empty: it was decided.
    """

    manifest: Manifest
    answer: ObjectAnswer
    undecided: str = ""

    @property
    def uses_gpus(self) -> bool:
        """Tell whether the object is or makes GPU pods; one that was not decided may."""
        return self.answer.uses_gpus or bool(self.undecided)


_UNMATCHED: dict[UnmatchedPolicy | None, ReviewResult] = {"deny": "denied", None: "undecided"}


def apply_unmatched(answer: ObjectAnswer, policy: UnmatchedPolicy | None) -> ObjectAnswer:
    """Answer for the containers without a target; None: nobody says that they may pass."""
    outcome = _UNMATCHED.get(policy, "unmatched")
    results = tuple(
        replace(one, outcome=outcome, messages=() if policy == "allow" else one.messages)
        if one.outcome == "unmatched"
        else one
        for one in answer.results
    )
    denied = any(one.outcome == "denied" for one in results)
    return replace(answer, allowed=answer.allowed and not denied, results=results)


def make_answers(checked: CheckedManifest) -> Iterator[Answer]:
    """Yield what report formats take: an answer for each result, and for remarks."""
    manifest, answer = checked.manifest, checked.answer
    if checked.undecided:
        yield _object_answer(manifest, "unknown", f"not decided: {checked.undecided}")
        return
    for result in answer.results:
        yield _result_answer(manifest, result)
    if not answer.allowed and not answer.results:
        yield _object_answer(manifest, "fail", answer.message)
    for said in answer.warnings:
        yield _object_answer(manifest, "warn", said)


def _object_answer(manifest: Manifest, outcome: FindingOutcome, said: str) -> Answer:
    """Return an answer about an object as a whole, at the annotation or container that it names."""
    place = _annotation_place(manifest, said, ()) or _container_place(manifest, said)
    body = _unjudged(outcome, manifest.name, None, [_note(outcome, said)])
    result = "undecided" if outcome == "unknown" else "denied" if outcome == "fail" else "warned"
    return _answer(manifest, body, place, "", [], result, [said])


def _result_answer(manifest: Manifest, result: ObjectResult) -> Answer:
    container = manifest.locate(result.paths[0]) if result.paths else ()
    names = ", ".join(result.containers[:_MAX_NAMES])
    if (more := len(result.containers) - _MAX_NAMES) > 0:
        names += f" and {more} more"
    shown = f"container{'s' if len(result.containers) > 1 else ''} {to_one_line(names, 200)}"
    places: dict[str, Place] = {}
    if result.verdict is not None:
        body = _exempt(result) if result.waiver else _name_open_first(result.verdict)
        place = Place(manifest.file, manifest.line((*container, "image")))
        places = _stated_places(manifest, container)
    else:
        finding = _unjudged_finding(result)
        image = f" ({to_one_line(result.image, 120)})" if result.image else ""
        findings = [*_waiver_notes(result), finding]
        body = _unjudged(finding["outcome"], f"{shown}{image}", result.target, findings)
        limits = Place(manifest.file, manifest.line((*container, "resources", "limits")))
        place = _annotation_place(manifest, finding["message"], container) or limits
    return _answer(
        manifest, body, place, shown, result.containers, result.outcome, result.messages, places
    )


def _answer(
    manifest: Manifest,
    verdict: Json,
    place: Place,
    part: str,
    containers: Sequence[str],
    outcome: str,
    said: Sequence[str],
    places: Mapping[str, Place] | None = None,
) -> Answer:
    path = relative_path(manifest.file)
    name = ", ".join(filter(None, (manifest.name, part)))
    about = {
        "file": path,
        "line": place.line,
        "kind": manifest.kind,
        "namespace": manifest.namespace,
        "object": manifest.name,
        "containers": list(containers),
        "outcome": outcome,
        "messages": [to_one_line(text, _LONGEST) for text in said],
    }
    return Answer(
        {**verdict, "manifest": about},
        file=f"{path}: {name}",
        places=places or {},
        at=place,
        heading=f"{path}:{place.line}: {name}",
    )


def _unjudged_finding(result: ObjectResult) -> Json:
    waived = result.waiver is not None
    if result.finding is not None:
        return {**result.finding, "outcome": "waived"} if waived else dict(result.finding)
    outcome: FindingOutcome = "warn" if result.messages else "not-checked"
    if result.outcome in ("denied", "undecided"):
        outcome = "fail" if result.outcome == "denied" else "unknown"
    elif waived:
        outcome = "waived"
    names = ", ".join(result.containers[:_MAX_NAMES])
    return _note(outcome, result.messages[0] if result.messages else f"{names} {_NO_MATCH}")


def _name_open_first(verdict: Json) -> Json:
    """Return a verdict whose open points lead, as in the webhook: other findings depend on them."""
    points, findings = verdict["stack"].get("open", ()), verdict["findings"]
    leading = [one for one in findings if any(point in one["message"] for point in points)]
    opened = [{**one, "need": one["need"] or OPEN_IMAGE_NEED} for one in leading]
    return {**verdict, "findings": opened + [one for one in findings if one not in leading]}


def _exempt(result: ObjectResult) -> Json:
    """Return a denying verdict whose findings a waiver of CG822 takes the weight of."""
    verdict = dict(result.verdict or {})
    findings = [
        {**one, "outcome": "waived"} if one["outcome"] in REFUSING else one
        for one in verdict["findings"]
    ]
    findings = [*_waiver_notes(result), *findings]
    return {**verdict, "allowed": True, "verdict": "warn", "findings": findings}


def _waiver_notes(result: ObjectResult) -> list[Json]:
    said = result.messages if result.waiver is not None else ()
    return [_finding(exempted, "warn", text) for text in said]


def _note(outcome: FindingOutcome, said: str) -> Json:
    return _finding(admission_note, outcome, said)


def _finding(rule: Rule, outcome: FindingOutcome, said: str) -> Json:
    text = to_one_line(said.removeprefix("compatgate: "), _LONGEST)
    return rule.finding(outcome, (), "target", None, None, text).to_json()


def _unjudged(
    outcome: FindingOutcome, subject: str, target: str | None, findings: Sequence[Json]
) -> Json:
    """Return the form of a verdict for what no rule about stacks was asked about."""
    worst = max((f["outcome"] for f in findings), key=lambda o: OUTCOME_RANK[o])
    verdict: Outcome = "pass" if OUTCOME_RANK[worst] == 0 else worst
    body = Verdict(
        id="",
        verdict=verdict,
        allowed=verdict in ("pass", "warn"),
        mode="enforce",
        target=target,
        findings=(),
        checked=Checked((), ()),
        stack={},
        pools=(),
        matrix_revision=0,
        facts="",
        decided_at=format_moment(clock.now()),
    )
    return {**body.to_json(), "findings": list(findings), "subject": subject}


def _stated_places(manifest: Manifest, container: FieldPath) -> dict[str, Place]:
    path = _annotation_path(manifest, STACK_ANNOTATION, container)
    if path is None:
        return {}
    try:
        stated = parse_stack_text(read_text(_at(manifest.document, path)))
    except BadInput:
        return {}
    place = Place(manifest.file, manifest.line(path))
    return {canonical_key(name): place for name in stated}


def _annotation_place(manifest: Manifest, said: str, container: FieldPath) -> Place | None:
    """Return the line of the annotation that a message names, if the object has it."""
    for match in _ANNOTATION.finditer(said):
        path = _annotation_path(manifest, match[0], container)
        if path is not None:
            return Place(manifest.file, manifest.line(path))
    return None


def _annotation_path(manifest: Manifest, key: str, container: FieldPath) -> FieldPath | None:
    """Return the place of an annotation: of the container's pod, else of the object.

    An error about an object names no container: then any pod template of the object counts.
    """
    for end in range(len(container), -1, -1):
        for parents in (("metadata", "annotations"), ("annotations",)):
            path = (*container[:end], *parents, key)
            if isinstance(_at(manifest.document, path), str):
                return path
    anywhere = (
        (*where, key)
        for where, here in mappings(manifest.document)
        if where[-1:] == ("annotations",) and isinstance(here.get(key), str)
    )
    return None if container else next(anywhere, None)


def _container_place(manifest: Manifest, said: str) -> Place:
    if match := _CONTAINER.search(said):
        for where, here in mappings(manifest.document):
            if here.get("name") == match[1] and _CONTAINER_KEYS.intersection(here):
                return Place(manifest.file, manifest.line(where))
    return Place(manifest.file, manifest.line())


def _at(value: Any, path: FieldPath) -> Any:
    for step in path:
        try:
            value = value[step]
        except (LookupError, TypeError):
            return None
    return value
