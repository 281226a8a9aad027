"""Exemptions from the hook: by annotation or namespace, and always by a waiver that allows it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from msgspec import Struct

from compatgate.core.matrix import Waiver
from compatgate.core.rules.waived import exempted
from compatgate.core.stack import Stack, parse_stack
from compatgate.core.verdict import Verdict
from compatgate.errors import BadInput
from compatgate.gate.admission.questions import Question


class Exemption(Struct, frozen=True):
    """Namespaces that the operator exempts by a waiver."""

    namespaces: str
    waiver: str


class Exempt(Struct, frozen=True):
    """What became of it.

    Attributes:
        waiver: that exempts; None: none does.
        why_not: why the waiver that was named does not; empty where none was named.
    """

    waiver: Waiver | None = None
    why_not: str = ""


def parse_exemptions(values: Sequence[str], field: str) -> tuple[Exemption, ...]:
    """Read ``NAMESPACE=WAIVER``, the namespace a glob.

    Raises:
        BadInput: one has another form.
    """
    found = []
    for value in values:
        namespaces, _, waiver = (part.strip() for part in value.partition("="))
        if not namespaces or not waiver:
            hint = "NAMESPACE=WAIVER, like batch-*=night-run"
            raise BadInput(f"{value!r} exempts nothing", field=field, value=value, hint=hint)
        found.append(Exemption(namespaces, waiver))
    return tuple(found)


def exempt(
    question: Question,
    verdict: Verdict | None,
    namespace: str,
    exemptions: Iterable[Exemption],
    waivers: Mapping[str, Waiver],
    today: str,
) -> Exempt:
    """Whether what would be denied is let in.

    Args:
        question: names a waiver, perhaps.
        verdict: None: it is bound for no target.
        namespace: of the object.
        exemptions: of the operator.
        waivers: by name.
        today: ISO date.
    """
    names = [question.waiver] if question.waiver else []
    names += [e.waiver for e in exemptions if fnmatchcase(namespace, e.namespaces)]
    why_not = ""
    for name in names:
        waiver = waivers.get(name)
        if waiver is None:
            why_not = why_not or f"there is no waiver {name!r}"
        elif problem := _problem(waiver, question, verdict, today):
            why_not = why_not or f"the waiver {name} {problem}"
        else:
            return Exempt(waiver)
    return Exempt(None, why_not)


def _problem(waiver: Waiver, question: Question, verdict: Verdict | None, today: str) -> str:
    if exempted.id not in waiver.rules:
        return f"does not name {exempted.id}, and exempts nothing"
    if today > waiver.expires:
        return f"ended on {waiver.expires}"
    image = (verdict.image if verdict else None) or question.image or None
    stack = parse_stack(verdict.stack, image=image) if verdict else Stack({}, image=image)
    if not waiver.covers(question.target or "", stack, today):
        return "is for other targets, images or stacks"
    return ""
