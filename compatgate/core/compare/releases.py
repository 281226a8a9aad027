"""Ask which releases of each framework work on the pools, before and after a change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.compare.frontier import FactsEvaluator
from compatgate.core.entry_stacks import known_versions
from compatgate.core.facts import Facts
from compatgate.core.facts.frameworks import Build, Release
from compatgate.core.matrix import parse_constraint
from compatgate.core.request import Pool
from compatgate.core.rule import OUTCOME_RANK
from compatgate.core.stack import Stack, stack_of
from compatgate.core.versions import format_parts, parse_version

MAX_RELEASES = 24
"""Releases of a framework that a plan asks about, the newest."""


class FrameworkChange(Struct, frozen=True):
    """The releases of a framework that work on some pools, before and after.

    Attributes:
        pools: names of the pools that share this answer.
        before: number of releases that work before.
        lost: releases that no longer work, ascending.
        gained: releases that begin to work, ascending.
        oldest: oldest release that works after the change; None: no release works.
        why: the reason for the newest lost release.
    """

    framework: str
    pools: tuple[str, ...]
    before: int
    after: int
    lost: tuple[str, ...]
    gained: tuple[str, ...]
    oldest: str | None
    newest: str | None
    why: str | None


def compare_frameworks(
    names: Iterable[str],
    moves: Sequence[tuple[Pool, Pool]],
    changes: Mapping[str, Any],
    judge: FactsEvaluator,
    facts: Facts,
) -> tuple[FrameworkChange, ...]:
    """Return the releases of frameworks that work before and after; equal pools share an answer.

    A release works where one of its builds does; after a change of CUDA, one for its major.

    Args:
        names: of the frameworks.
        moves: each pool before and after.
        changes: of the plan.
        judge: evaluates by the facts.
        facts: with the releases.
    """
    wanted = changes.get("cuda")
    major = parse_version("cuda", wanted).major if isinstance(wanted, str) else None
    found: dict[FrameworkChange, list[str]] = {}
    for name in names:
        for before, after in moves:
            row = _compare(name, before, after, major, judge, facts)
            if row is not None:
                found.setdefault(row, []).append(before.name)
    return tuple(replace(row, pools=tuple(pools)) for row, pools in found.items())


def _compare(
    name: str, before: Pool, after: Pool, major: int | None, judge: FactsEvaluator, facts: Facts
) -> FrameworkChange | None:
    table = facts.framework(name)
    releases = table.releases[-MAX_RELEASES:] if table else ()
    worked, works = [], []
    lost, gained = [], []
    why = None
    for release in releases:
        was, _ = _works(name, release, before, None, judge, facts)
        then, reason = _works(name, release, after, major, judge, facts)
        text = release.version.text
        if was:
            worked.append(text)
        if then:
            works.append(text)
        if was and not then:
            lost.append(text)
            why = reason
        if then and not was:
            gained.append(text)
    if not worked and not works:
        return None
    return FrameworkChange(
        name,
        (),
        len(worked),
        len(works),
        tuple(lost),
        tuple(gained),
        works[0] if works else None,
        works[-1] if works else None,
        why,
    )


def _works(
    name: str, release: Release, pool: Pool, major: int | None, judge: FactsEvaluator, facts: Facts
) -> tuple[bool, str]:
    """Return whether a build of a release works on a pool by the facts, and else why not."""
    reason = f"no build of {name} {release.version} is for CUDA {major}"
    for build in release.builds:
        if major is not None and build.cuda_major != major:
            continue
        rank, rules = judge(_make_stack(name, release, build, facts), pool)
        if rank < OUTCOME_RANK["unknown"]:
            return True, ""
        reason = rules[0] if rules else reason
    return False, reason


def _make_stack(name: str, release: Release, build: Build, facts: Facts) -> Stack:
    """Return a stack of a build, with the oldest CUDA that it accepts where it names none."""
    text = release.version.text
    label = build.label or ""
    labelled = f"{text.partition('+')[0]}+{label}" if label.startswith("cu") else text
    versions = {name: parse_version(name, labelled)}
    if build.cuda is not None:
        versions["cuda"] = parse_version("cuda", format_parts(build.cuda))
    else:
        accepted = parse_constraint("cuda", build.accepts)
        fitting = [v for v in known_versions(facts, "cuda") if accepted.allows(v)]
        if fitting:
            versions["cuda"] = min(fitting)
    return stack_of(versions)
