"""Check waivers against the policies of their targets, find their end, and draft them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date, timedelta
from typing import Any, Literal

from msgspec import Struct
from sqlalchemy.orm import Session

from compatgate.core.components import COMPONENTS
from compatgate.core.constraints import parse_constraint
from compatgate.core.matrix import ANY_TARGET, Waiver
from compatgate.core.rules import BY_ID
from compatgate.core.versions import parse_version
from compatgate.documents.checks import is_within_limit, waiver_limit, waiver_problems
from compatgate.documents.sources import DocumentProblem, Problems
from compatgate.documents.specs import Document, TargetDoc, WaiverDoc, key_of, to_body
from compatgate.documents.text import RawDocument
from compatgate.documents.validation import DocumentCheck, ParsedDocuments
from compatgate.errors import BadInput
from compatgate.kit import clock
from compatgate.service.matrix.documents import repository as documents

SOON_DAYS = 14
"""A waiver that ends within so many days needs attention."""
WaiverState = Literal["active", "soon", "expired"]
_COMPONENT_LINE = re.compile(r"([^\s:=<>~!]+)(?:\s*:\s*|\s*=(?!=)\s*|\s+|(?=[=<>~!]))(\S.*)")
_SEPARATOR = re.compile(r"[\s,;]+")


def make_waiver_check(session: Session) -> DocumentCheck:
    """Return a check of waivers against policies; stored waivers that do not change pass."""

    def found(read: ParsedDocuments) -> Iterator[DocumentProblem]:
        waivers = [(raw, one) for raw, one in read if isinstance(one, WaiverDoc)]
        stored = documents.find_documents(session, [key_of(one) for _, one in waivers])
        changed = [
            (raw, one) for raw, one in waivers if not is_within_limit(stored.get(key_of(one)), one)
        ]
        names = {name for _, waiver in changed for name in waiver.spec.targets}
        known = documents.DocumentLookup(session).targets(names)
        imported = [one for _, one in read if isinstance(one, TargetDoc)]
        targets = {one.metadata.name: one for one in (*known, *imported)}
        for raw, one in changed:
            limit = waiver_limit(one.spec.targets, targets, clock.now())
            yield from waiver_problems(raw, one, limit)

    return found


def check_waivers(session: Session, imported: Sequence[Document]) -> None:
    """Check waivers again before writing: policies may have changed since they were read."""
    found = Problems()
    read = [(RawDocument(None, to_body(d)), d) for d in imported if isinstance(d, WaiverDoc)]
    others = [(RawDocument(None, None), d) for d in imported if isinstance(d, TargetDoc)]
    for problem in make_waiver_check(session)([*read, *others]) if read else ():
        found.add(problem)
    found.raise_if_any()


class Countdown(Struct, frozen=True):
    """The state of a waiver, and the days from today to its last day; negative: it has ended."""

    waiver: Waiver
    state: WaiverState
    days: int


def count_down(waiver: Waiver, today: date) -> Countdown:
    """Return the state of a waiver; it holds through its last day, in UTC."""
    days = (date.fromisoformat(waiver.expires) - today).days
    state: WaiverState = "expired" if days < 0 else "soon" if days <= SOON_DAYS else "active"
    return Countdown(waiver, state, days)


def list_countdowns(
    waivers: Iterable[Waiver], today: date, *, target: str = "", owner: str = "", search: str = ""
) -> list[Countdown]:
    """Return waivers, the next to end first."""
    words, found = search.casefold().split(), []
    for waiver in waivers:
        text = f"{waiver.name} {waiver.reason} {' '.join(waiver.rules)}".casefold()
        if (
            (not target or target in waiver.targets or ANY_TARGET in waiver.targets)
            and (not owner or owner == waiver.owner)
            and all(word in text for word in words)
        ):
            found.append(count_down(waiver, today))
    return sorted(found, key=lambda one: (one.days, one.waiver.name))


def draft_waiver_form(verdict: Mapping[str, Any], on_unknown: str = "fail") -> dict[str, str]:
    """Return form fields for a waiver of exactly the findings that deny a stack.

    Rules that no waiver can cover are left out. Where ``on_unknown`` is ``fail``, what is unknown
    denies.
    """
    denying = {verdict["verdict"], "fail", *(("unknown",) if on_unknown == "fail" else ())}
    against = {f["rule"] for f in verdict["findings"] if f["outcome"] in denying}
    rules = sorted(one for one in against if one in BY_ID and not BY_ID[one].not_waivable)
    begun = {"rules": ", ".join(rules), "targets": verdict["target"] or ""}
    if verdict["image"]:
        return {**begun, "image": verdict["image"]}
    matched = match_versions(verdict["stack"])
    return {**begun, "components": "\n".join(f"{n} {said}" for n, said in matched.items())}


def match_versions(stack: Mapping[str, Any]) -> dict[str, str]:
    """Return the constraints that exactly the versions of a stack satisfy, by component."""
    found = {}
    for name, value in stack.items():
        if name in COMPONENTS and name != "driver" and isinstance(value, str):
            with suppress(BadInput):
                if parse_constraint(name, f"=={value}").allows(parse_version(name, value)):
                    found[name] = f"=={value}"
    return found


def split_words(text: str) -> list[str]:
    """Return words that commas, semicolons or spaces separate."""
    return [word for word in _SEPARATOR.split(text) if word]


def parse_components(text: str) -> dict[str, str]:
    """Read constraints, one component per line: ``torch ~=2.4.0``."""
    found: dict[str, str] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        parts = _COMPONENT_LINE.fullmatch(line)
        if parts is None:
            hint = "one component per line: torch ~=2.4.0"
            raise BadInput("needs a version", field="components", value=line, hint=hint)
        if parts[1] in found:
            raise BadInput("is stated twice", field="components", value=parts[1])
        found[parts[1]] = parts[2].strip()
    return found


def end_document(document: Mapping[str, Any], today: date) -> dict[str, Any]:
    """Return a waiver's document that ended yesterday at the latest."""
    last = min(document["spec"]["expires"], (today - timedelta(days=1)).isoformat())
    return {**document, "spec": {**document["spec"], "expires": last}}
