"""Which versions of a component fit what else was chosen, by the vendors' facts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.evaluate import evaluate
from compatgate.core.facts import Facts
from compatgate.core.representative import known_versions
from compatgate.core.stack import Stack
from compatgate.core.target import Target
from compatgate.core.versions import Version

MOST = 48
"""The newest so many are offered; older ones can be typed."""


class Choice(Struct, frozen=True):
    """A version.

    Attributes:
        fits: nothing that is known speaks against it.
        why: the first thing that does.
        chosen: it is the one that is stated.
    """

    version: str
    fits: bool
    why: str
    chosen: bool


def choices(
    facts: Facts, target: Target, stack: Stack, component: str, now: datetime
) -> tuple[Choice, ...]:
    """Versions of a component, newest first.

    A version fits unless a rule fails that holds without it: what is wrong with the rest of the
    stack is not held against it.

    Args:
        facts: say which versions there are.
        target: where it is to run.
        stack: what else is chosen.
        component: by its canonical name.
        now: for ends of life.
    """
    others = {name: v for name, v in stack.components.items() if name != component}
    rest = replace(stack, components=others)
    wrong = set(_failing(facts, target, rest, now)) if others or stack.arch else set()
    stated = stack.get(component)
    found = []
    for version in _offered(facts, component, stated):
        tried = replace(stack, components={**others, component: version})
        failing = _failing(facts, target, tried, now)
        new = [message for rule, message in failing.items() if rule not in wrong]
        chosen = stated is not None and version.key == stated.key
        found.append(Choice(version.text, not new, new[0] if new else "", chosen))
    return tuple(found)


def _offered(facts: Facts, component: str, stated: Version | None) -> Sequence[Version]:
    newest = sorted(known_versions(facts, component), reverse=True)[:MOST]
    if stated is not None and all(version.key != stated.key for version in newest):
        return [stated, *newest]
    return newest


def _failing(facts: Facts, target: Target, stack: Stack, now: datetime) -> dict[str, str]:
    verdict = evaluate(stack, target, facts=facts, now=now, with_fixes=False)
    return {f.rule: f.message for f in verdict.findings if f.outcome == "fail"}
