"""Check packages and frameworks for CG415: the glibc that their wheels need.

Loaded by the first question that states a glibc, or the distribution of a pool's nodes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from compatgate.core.constraints import parse_constraint
from compatgate.core.facts.compilers import Glibc
from compatgate.core.facts.nvidia import Source
from compatgate.core.parts import Candidate
from compatgate.core.rule import NOT_APPLICABLE, PASS, Problem, RuleAnswer, report_missing_fact
from compatgate.core.rule_context import RuleContext
from compatgate.core.versions import Version, parse_version

_TAG = re.compile(r"(?P<legacy>manylinux(?:1|2010|2014))_|manylinux_(?P<glibc>\d+_\d+)_")


class Have(Struct, frozen=True):
    """The glibc that a stack runs with."""

    glibc: Version
    # the stack states it; otherwise it is that of the nodes' distribution, which a container or an
    # environment may replace
    stated: bool
    where: str  # what has it, for messages


def check_glibc(context: RuleContext) -> RuleAnswer:
    """Report the wheels that need a newer glibc than the stack runs with."""
    have = _find_glibc(context)
    if have is None:
        return NOT_APPLICABLE
    needed = {name: (need, source) for name, need, source in _find_needs(context)}
    problems = [
        _report_older(f"{name} {context.stack.versions[name]}", need, source, have)
        for name, (need, source) in needed.items()
        if have.glibc < need
    ]
    if have.stated:
        pure = {name for name, file in _wheel_files(context).items() if file.endswith("-any.whl")}
        open_names = [one for one in context.stack.versions if one not in pure | needed.keys()]
        problems += [p for name in open_names for p in _judge_unmeasured(context, name, have.glibc)]
    return problems or (PASS if needed else NOT_APPLICABLE)


def _judge_unmeasured(
    context: RuleContext, name: str, glibc: Version
) -> tuple[Problem] | tuple[()]:
    """Judge a wheel that nobody measured by all that is known of wheels.

    A release between known ones needs what they need; any other may need what any wheel needs.
    """
    version, facts = context.stack.versions[name], context.facts
    own = bool(version.local) and version.cuda is None
    carries = facts.packages.carries(name) if facts.is_package(name) else "nothing"
    has_code = name in facts.frameworks or carries not in ("nothing", "options")
    if own or version.key[1] == 0 or name in context.stack.measured or not has_code:
        return ()
    wheels = [one for one in facts.records(name) if one.wheel]
    tags = [(one.version, tag) for one in wheels if (tag := read_tag(one.wheel, facts.glibc))]
    known = [tag for _, tag in tags]
    releases = [parse_version(name, text) for text, _ in tags]
    if not releases or not min(releases) <= version <= max(releases):
        known += [one.glibc for one in facts.glibc.needs]
    highest = max(known)
    if glibc >= highest:
        return ()
    message = f"which glibc the wheel of {name} {version} needs is not known; known wheels need up"
    message += f" to {highest}"
    need = f">={highest}, or the wheel's name, whose tag says it"
    return report_missing_fact("glibc", message, need=need, have=glibc.text)


def _find_glibc(context: RuleContext) -> Have | None:
    stated = context.stack.get("glibc")
    if stated is not None:
        return Have(stated, True, "the stack")
    name = context.pool.node.get("distribution")
    if name is None or context.stack.image is not None:
        return None  # an image brings its own
    known = context.facts.glibc.of_distribution(name)
    return Have(known[0], False, name) if known else None


def _find_needs(context: RuleContext) -> Iterator[tuple[str, Version, Source]]:
    """Yield each part and what it needs: the highest of its tag and the facts."""
    table, files = context.facts.glibc, _wheel_files(context)
    for name, version in context.stack.versions.items():
        if version.key[1] == 0:
            continue  # a private build, or a pre-release
        own = bool(version.local) and version.cuda is None
        found = [
            (need.glibc, need.source)
            for need in table.needs
            if need.name == name and not own
            if need.cpu in ("", context.pool.cpu)
            if not need.cudas or version.cuda in need.cudas
            if parse_constraint(name, need.versions).allows(version)
        ]
        if (wheel := files.get(name)) and (tagged := read_tag(wheel, table)):
            found.append((tagged, table.tags_source))
        if found:
            glibc, source = max(found, key=lambda one: one[0].key)
            yield name, glibc, source


def _wheel_files(context: RuleContext) -> dict[str, str]:
    files = {name: wheel.file for name, wheel in context.stack.wheels.items() if wheel.file}
    for package in context.packages:
        if wheel := package.file or (package.record.wheel if package.record else ""):
            files.setdefault(package.name, wheel)
    return files


def read_tag(wheel: str, table: Glibc) -> Version | None:
    """Return the glibc that the platform tag of a wheel asks for, the lowest of several.

    Args:
        wheel: file name, as ``x-1.0-cp312-cp312-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl``.
    """
    found = [
        table.tags[match["legacy"]]
        if match["legacy"]
        else parse_version("glibc", match["glibc"].replace("_", "."))
        for match in _TAG.finditer(wheel.rpartition("-")[2])
    ]
    return min(found, key=lambda one: one.key, default=None)


def _report_older(title: str, need: Version, source: Source, have: Have) -> Problem:
    message = f"the wheel of {title} needs glibc {need}, {have.where} has {have.glibc}"
    if not have.stated:
        message += "; whether it runs in a container with a newer one is not known"
    return Problem(
        "fail" if have.stated else "unknown",
        "glibc",
        message,
        have=have.glibc.text,
        need=f">={need}",
        source=source,
        candidates=lambda: [Candidate({"glibc": need.text}, f"use an image with glibc {need}")],
    )
