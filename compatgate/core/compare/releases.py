"""Ask which releases of each framework work on the pools, before and after a change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.compare.frontier import FactsEvaluator
from compatgate.core.constraints import parse_constraint
from compatgate.core.entry_stacks import known_versions
from compatgate.core.facts import Facts
from compatgate.core.facts.frameworks import Build, Release
from compatgate.core.request import Pool
from compatgate.core.rule import OUTCOME_RANK
from compatgate.core.stack import Stack, stack_of
from compatgate.core.versions import format_parts, parse_version

MAX_RELEASES = 24
"""Releases of a framework that a plan asks about, the newest."""

_Builds = list[tuple[int | None, Stack]]
"""CUDA major and stack of each build of a release."""


class FrameworkChange(Struct, frozen=True):
    """The releases of a framework that work on some pools, before and after.

    Attributes:
        pools: names of the pools that share this answer.
        before: number of releases that work before.
        oldest: oldest release that works after the change; None: no release works.
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
    """Return the releases of frameworks that work on each pool before and after.

    Equal pools share an answer. A release works where one of its builds does; after a change of
    CUDA, one for its major.
    """
    wanted = changes.get("cuda")
    major = parse_version("cuda", wanted).major if isinstance(wanted, str) else None
    rows: dict[FrameworkChange, list[str]] = {}
    for name in names:
        table = facts.framework(name)
        builds: dict[str, _Builds] = {
            release.version.text: [
                (build.cuda_major, _make_stack(name, release, build, facts))
                for build in release.builds
            ]
            for release in (table.releases[-MAX_RELEASES:] if table else ())
        }
        for before, after in moves:
            if row := _compare(name, builds, before, after, major, judge):
                rows.setdefault(row, []).append(before.name)
    return tuple(replace(row, pools=tuple(pools)) for row, pools in rows.items())


def _compare(
    name: str,
    releases: Mapping[str, _Builds],
    before: Pool,
    after: Pool,
    major: int | None,
    judge: FactsEvaluator,
) -> FrameworkChange | None:
    reasons = {text: f"no build of {name} {text} is for CUDA {major}" for text in releases}
    old = {text: _explain(builds, before, None, judge, "") for text, builds in releases.items()}
    new = {
        text: _explain(builds, after, major, judge, reasons[text])
        for text, builds in releases.items()
    }
    worked = [text for text, reason in old.items() if reason is None]
    works = [text for text, reason in new.items() if reason is None]
    if not worked and not works:
        return None
    lost = tuple(text for text in worked if text not in works)
    return FrameworkChange(
        name,
        (),
        len(worked),
        len(works),
        lost,
        tuple(text for text in works if text not in worked),
        works[0] if works else None,
        works[-1] if works else None,
        new[lost[-1]] if lost else None,
    )


def _explain(
    builds: _Builds, pool: Pool, major: int | None, judge: FactsEvaluator, reason: str
) -> str | None:
    """Return why no build works on a pool by the facts; None: one does."""
    for cuda_major, stack in builds:
        if major is None or cuda_major == major:
            rank, rules = judge(stack, pool)
            if rank < OUTCOME_RANK["unknown"]:
                return None
            reason = rules[0] if rules else reason
    return reason


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
