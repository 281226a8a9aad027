"""Check that what a fact names exists: toolkits, branches, GPUs, platforms, components, rules.

Also check what makes an overlay unsafe: a driver that reports another CUDA than its toolkit, two
products with one spelling, code that a toolkit cannot generate, a fix that does not resolve its
issue.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from fnmatch import fnmatchcase
from typing import Any

from msgspec import Struct

from compatgate.catalog.sources import format_of, title
from compatgate.core.components import COMPONENTS
from compatgate.core.constraints import parse_constraint
from compatgate.core.facts import Facts
from compatgate.core.facts.frameworks import Build, Release
from compatgate.core.gpus import normalise
from compatgate.core.node import NODE_COMPONENTS, parse_node_version
from compatgate.core.rules import BY_ID
from compatgate.core.versions import format_parts, make_version, parse_version


class Problem(Struct, frozen=True, order=True):
    """A problem in the facts.

    Attributes:
        check: id of the check that found it, ``driver-order``.
        subject: record concerned, ``cuda_driver 12.4.1``.
    """

    check: str
    subject: str
    message: str

    def __str__(self) -> str:
        return f"{self.check}: {self.subject}: {self.message}"


class Context(Struct, frozen=True):
    """Input of the checks: the tables that rules read, and the parsed files."""

    facts: Facts
    documents: dict[str, dict[str, Any]]


Check = Callable[[Context], Iterator[Problem]]


def names_exist(context: Context) -> Iterator[Problem]:
    """Check that the toolkits, GPUs, branches, platforms and rules exist that a fact names."""
    for check, subject, name, known, problem in _list_names(context.facts):
        if name not in known:
            yield Problem(check, subject, problem)


_Named = tuple[str, str, object, Container[Any], str]
"""Check, subject, name, the names that exist, and the problem where it does not."""


def _list_names(facts: Facts) -> Iterator[_Named]:
    """Yield what facts name, table by table."""
    gpus, platforms = facts.gpus.gpus, facts.platforms.platforms
    rows = {toolkit.version.text for toolkit in facts.cuda_driver.toolkits}
    for release, row in facts.cuda_driver.same_row.items():
        what = f"row {row} does not exist"
        yield "same-row-exists", f"cuda_driver {release}", row, rows, what
    for name in facts.gpu_peaks.gpus:
        yield "peak-names", f"gpu_peaks {name}", name, gpus, "no product in gpus has this name"
    yield from _list_kernel_names(facts)
    for platform in platforms.values():
        for name in platform.gpus:
            what = f"{name} is not in gpus"
            yield "platform-gpus", f"platforms {platform.name}", name, gpus, what
    for machine in facts.platform_machines.machines:
        subject = f"platform_machines {machine.platform}"
        yield "platform-names", subject, machine.platform, platforms, "is not in platforms"
        for name in (gpu for condition in machine.recognise for gpu in condition.gpus):
            yield "machine-gpus", subject, name, gpus, f"no product in gpus is named {name}"
    yield from _list_cause_names(facts)


def _list_kernel_names(facts: Facts) -> Iterator[_Named]:
    support, parts = facts.kernel_support, facts.node_parts
    branches = {
        *support.minimums,
        *support.distributions,
        *(row.branch for row in support.validated),
        *(row.driver.major for row in support.named),
    }
    known = facts.driver_branches.branches
    for branch in sorted(branches):
        yield "kernel-branches", f"kernel_support {branch}", branch, known, "no such driver branch"
    conditional: tuple[Any, ...] = (*parts.needs, *parts.defects)
    conditions = [(f"node_components {one.id}", one.when) for one in conditional]
    named = [
        *((f"kernel_modules {r.architecture}", r.gpus) for r in facts.kernel_modules.architectures),
        *((f"node_components {one.system}", one.gpus) for one in parts.fabric_systems),
        *((subject, when.gpus) for subject, when in conditions),
    ]
    for subject, names in named:
        for name in names:
            yield "node-references", subject, name, facts.gpus.gpus, f"GPU {name} does not exist"
    for subject, when in conditions:
        for name, values in (dict.fromkeys(when.uses, ()) | when.node).items():
            yield "node-references", subject, name, NODE_COMPONENTS, f"a node has no part {name}"
            choices = NODE_COMPONENTS[name].choices if name in NODE_COMPONENTS else ()
            for value in values if choices else ():
                yield "node-references", subject, value, choices, f"{name} cannot be {value}"


def _list_cause_names(facts: Facts) -> Iterator[_Named]:
    table = facts.error_signatures
    shown = {signature.cause for signature in table.signatures}
    known = set(facts.xid.by_notice) | set(table.by_id)
    for cause in table.causes:
        subject = f"error_signatures causes[id={cause.id}]"
        yield "cause-rules", subject, cause.id, shown, "no signature shows it"
        for rule in cause.rules:
            yield "cause-rules", subject, rule, BY_ID, f"rule {rule} does not exist"
        for name in cause.explains:
            what, explained = f"{name} is neither a message nor a cause", f"{subject}.explains"
            yield "cause-consequences", explained, name, known - {cause.id}, what


def platform_processors(context: Context) -> Iterator[Problem]:
    """Check that the GPUs of a platform go with its processor."""
    gpus = context.facts.gpus.gpus
    for platform in context.facts.platforms.platforms.values():
        for gpu in (gpus[name] for name in platform.gpus if name in gpus):
            if gpu.cpu and platform.cpu and gpu.cpu != platform.cpu:
                what = f"{gpu.name} goes with {gpu.cpu}"
                yield Problem("platform-gpus", f"platforms {platform.name}", what)


def branch_cuda(context: Context) -> Iterator[Problem]:
    """Check that a branch reports the CUDA of the toolkit that its drivers ship with."""
    branches = context.facts.driver_branches.branches
    for toolkit in context.facts.cuda_driver.toolkits:
        own = toolkit.driver.get("linux")
        branch = branches.get(own.major) if own else None
        if own and branch is None:
            what = f"missing, CUDA {toolkit.version} ships {own}"
            yield Problem("branch-cuda", f"driver_branches {own.major}", what)
        elif branch and branch.cuda != toolkit.version.major_minor:
            reported = format_parts(branch.cuda) if branch.cuda else "none"
            what = f"reports CUDA {reported}, its driver {own} ships with {toolkit.version}"
            yield Problem("branch-cuda", f"driver_branches {branch.branch}", what)


def file_of_component(context: Context) -> Iterator[Problem]:
    """Check that a file is named after its framework."""
    for name, document in context.documents.items():
        if format_of(name) == "framework" and title(name) != document["component"]:
            yield Problem("file-of-component", name, f"is about {document['component']}")


def build_cuda(context: Context) -> Iterator[Problem]:
    """Check that a build is for an existing toolkit and accepts it."""
    for build, subject in _wheels(context):
        if build.cuda is None:
            continue
        cuda = format_parts(build.cuda)
        if build.cuda not in context.facts.toolkits_of:
            yield Problem("build-cuda", subject, f"CUDA {cuda} is not a toolkit")
        if not parse_constraint("cuda", build.accepts).allows(make_version(cuda, build.cuda)):
            yield Problem("build-cuda", subject, f"does not accept its own CUDA: {build.accepts}")


def build_code(context: Context) -> Iterator[Problem]:
    """Check that a build has only code that its toolkit can generate."""
    channels = (
        (build, f"{name} {release.version} {build.channel} {build.title}")
        for name, release in _releases(context)
        for build in release.conda
    )
    for build, subject in (*_wheels(context), *channels):
        toolkit = context.facts.arch.toolkits.get(format_parts(build.cuda)) if build.cuda else None
        for pair in (*(build.sass or ()), *(build.ptx or ())):
            if toolkit and pair not in toolkit.sass:
                what = f"{format_parts(pair)} is no target of CUDA {format_parts(toolkit.cuda)}"
                yield Problem("build-code", subject, what)


def pins_exist(context: Context) -> Iterator[Problem]:
    """Check that a pinned cuDNN or NCCL is a known release for this CUDA major."""
    cudnn, nccl = context.facts.cudnn_releases, context.facts.nccl_releases
    for build, subject in _wheels(context):
        for name, pin in build.pins.items():
            if name not in ("cudnn", "nccl") or pin.optional:
                continue
            if pin.floor is None or len(pin.floor.parts) < 3:
                continue
            release = pin.floor.at(3)
            if release not in (cudnn if name == "cudnn" else nccl):
                yield Problem("pins-exist", f"{subject} {name}", f"{pin.floor} is not known")
            elif name == "cudnn" and build.cuda_major not in cudnn[release].builds:
                what = f"{pin.floor} has no CUDA {build.cuda_major} build"
                yield Problem("pins-exist", f"{subject} {name}", what)


def frameworks_pinned(context: Context) -> Iterator[Problem]:
    """Check that a pinned framework is a known release with a build for the same CUDA major."""
    for name, release in _releases(context):
        for other, pin in release.pins.items():
            subject = f"{name} {release.version} {other}"
            base = context.facts.framework(other)
            releases = base.releases if base else ()
            known = next((one for one in releases if one.version == pin.floor), None)
            if known is None:
                yield Problem("frameworks-pinned", subject, f"{pin.floor} is not known")
                continue
            majors = {build.cuda_major for build in known.builds}
            for build in release.builds:
                if build.cuda_major not in majors:
                    what = f"{pin.floor} has no CUDA {build.cuda_major} build"
                    yield Problem("frameworks-pinned", subject, what)


def _releases(context: Context) -> Iterator[tuple[str, Release]]:
    for name in sorted(context.facts.framework_names):
        table = context.facts.framework(name)
        yield from ((name, release) for release in (table.releases if table else ()))


def _wheels(context: Context) -> Iterator[tuple[Build, str]]:
    """Yield the builds of all releases, each with its name for messages."""
    for name, release in _releases(context):
        for build in release.builds:
            yield build, f"{name} {release.version} {build.title}"


def issue_fixes(context: Context) -> Iterator[Problem]:
    """Check that a stack with the fix no longer matches the issue."""
    for issue in context.facts.known_issues.issues:
        for fix in issue.fixes:
            matches = (
                parse_constraint(name, text).allows(parse_version(name, fix[name]))
                for name, text in issue.components.items()
                if name in fix
            )
            if all(matches):
                shown = ", ".join(f"{name} {version}" for name, version in fix.items())
                what = f"{shown} still matches the issue"
                yield Problem("issue-fixes", f"known_issues {issue.id}", what)


def gpu_facts(context: Context) -> Iterator[Problem]:
    """Check branches, MIG drivers and spellings: each spelling names one product."""
    branches = context.facts.driver_branches.branches
    for name, gpu in context.facts.gpus.gpus.items():
        for branch in (gpu.first_branch, gpu.last_branch):
            if branch and branch not in branches:
                yield Problem("gpu-facts", f"gpus {name}", f"branch {branch} does not exist")
        if gpu.mig_driver and not gpu.mig_capable:
            yield Problem("gpu-facts", f"gpus {name}", "a MIG driver without MIG")
    named: dict[str, str] = {}
    for row in context.documents["gpus"]["gpus"]:
        for spelling in (row["name"], *(row.get("aliases") or ())):
            first = named.setdefault(normalise(spelling), row["name"])
            if first != row["name"]:
                yield Problem("gpu-facts", f"gpus {spelling}", f"names {first} and {row['name']}")


def xid_actions(context: Context) -> Iterator[Problem]:
    """Check that every immediate action is a guidance class with advice."""
    table = context.facts.xid
    named = {f"xids[xid={x.code}]": x.action for x in table.xids}
    named |= {
        f"xids[xid={x.code}] {other.driver}": other.action
        for x in table.xids
        for other in x.on_driver
    }
    named |= {f"sxids[sxid={s.code}]": s.action for s in table.sxids}
    named |= {f"messages[message={n.name}]": n.action for n in table.notices}
    named |= {f"recovery_actions[value={r.value}]": r.action for r in table.recoveries}
    for unit in table.nvlink:
        for case in unit.cases:
            subject = f"nvlink5[xid={unit.xid},unit={'/'.join(unit.names)}] {case.reason}"
            named |= {subject: case.action, f"{subject} promoted": case.promoted}
    for subject, action in named.items():
        if action and action not in table.advice:
            yield Problem("xid-actions", f"xid {subject}", f"no advice for {action}")


def platform_limits(context: Context) -> Iterator[Problem]:
    """Check that limits name platforms and components, and advise what they allow."""
    known = context.facts.platforms.platforms
    for limit in context.facts.platforms.limits:
        subject = f"platforms limits[id={limit.id}]"
        for name in limit.platforms:
            if name not in known:
                yield Problem("platform-limits", subject, f"platform {name} does not exist")
        for what in filter(None, (limit.component, limit.uses)):
            if what != "driver" and what not in NODE_COMPONENTS and what not in COMPONENTS:
                yield Problem("platform-limits", subject, f"{what} is not a component")
        if limit.advised:
            own = parse_version("driver", limit.advised) if limit.component == "driver" else None
            if not limit.allows(own or parse_node_version(limit.advised)):
                what = f"advises {limit.advised}, which it refuses"
                yield Problem("platform-limits", subject, what)


def platform_images(context: Context) -> Iterator[Problem]:
    """Check that images are of known platforms, and ship a driver of a known branch."""
    table, branches = context.facts.platforms, context.facts.driver_branches.branches
    for image in table.images:
        subject = f"platforms images[{image.title}]"
        for pattern in image.platforms:
            if not any(fnmatchcase(name, pattern) for name in table.platforms):
                yield Problem("platform-images", subject, f"no platform is {pattern}")
        if image.driver and image.driver.major not in branches:
            yield Problem("platform-images", subject, f"branch {image.driver.major} is not known")


REFERENCES: tuple[Check, ...] = (
    names_exist,
    branch_cuda,
    gpu_facts,
    build_cuda,
    build_code,
    pins_exist,
    frameworks_pinned,
    file_of_component,
    issue_fixes,
    xid_actions,
    platform_processors,
    platform_limits,
    platform_images,
)
