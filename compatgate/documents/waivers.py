"""What a new waiver is held against: it says what it is for, and lasts no longer than allowed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime
from typing import Any

from msgspec import UNSET, Struct
from msgspec.structs import replace

from compatgate.core.matrix import ANY_TARGET
from compatgate.documents.durations import parse_duration
from compatgate.documents.nodes import RawDocument
from compatgate.documents.problems import DocumentProblem
from compatgate.documents.specs import TargetDoc, WaiverDoc, WaiverPolicySpec


class Limit(Struct, frozen=True):
    """The latest end of a waiver.

    Attributes:
        day: last day on which it may hold, in UTC.
        longest: the duration that this comes from.
        target: whose policy says so; empty: no target's, it is the usual one.
    """

    day: date
    longest: str
    target: str = ""


def limit(names: Iterable[str], targets: Mapping[str, TargetDoc], now: datetime) -> Limit:
    """The latest end of a waiver for some targets: the earliest that one of them allows.

    Args:
        names: of the targets; ``*`` is all of them, and those that are yet to come.
        targets: every target that is named, by name.
        now: in UTC.
    """
    named = list(names)
    usual = _limit(WaiverPolicySpec(), now)
    every = ANY_TARGET in named
    found = [
        usual if target.spec.policy.waivers is UNSET else _limit(target.spec.policy.waivers, now, n)
        for n, target in targets.items()
        if every or n in named
    ]
    return min([*found, usual] if every or not found else found, key=lambda one: one.day)


def _limit(policy: WaiverPolicySpec, now: datetime, target: str = "") -> Limit:
    day = (now + parse_duration(policy.max_duration)).date()
    return Limit(day, policy.max_duration, target)


def is_no_more(before: object, after: WaiverDoc) -> bool:
    """Whether a waiver is as it was before, or ends earlier and is the same otherwise."""
    if not isinstance(before, WaiverDoc):
        return False
    expires = max(before.spec.expires, after.spec.expires)
    return replace(after, spec=replace(after.spec, expires=expires)) == before


def problems(raw: RawDocument, waiver: WaiverDoc, latest: Limit) -> Iterator[DocumentProblem]:
    """What keeps a new waiver, or a changed one, from being stored.

    Args:
        raw: as it was written, which tells where a mistake is.
        waiver: the same, read.
        latest: when it has to end.
    """
    if not waiver.spec.match.is_narrow and _stated(raw.value) is not True:
        yield raw.problem(
            ("spec", "match"),
            "names neither an image nor components: the waiver is for every stack of its targets",
            hint="name them, or state match: {everything: true}",
        )
    expires = waiver.spec.expires
    if expires > latest.day.isoformat():
        whose = f"the policy of {latest.target}" if latest.target else "the default"
        yield raw.problem(
            ("spec", "expires"),
            f"{expires} is too late: a waiver lasts at most {latest.longest} from today",
            value=expires,
            hint=f"{latest.day} is the latest day; {whose} limits it (policy.waivers.maxDuration)",
        )


def _stated(document: Any) -> Any:
    for step in ("spec", "match", "everything"):
        document = document.get(step) if isinstance(document, dict) else None
    return document
