"""Check that what a fact names exists: toolkits, branches, GPUs, platforms, components, rules.

Also check what makes an overlay unsafe: a driver that reports another CUDA than its toolkit, two
products with one spelling, code that a toolkit cannot generate, a fix that does not resolve its
issue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from typing import Any

from msgspec import Struct

from compatgate.catalog.sources import format_of, title
from compatgate.core.components import COMPONENTS
from compatgate.core.constraints import parse_constraint
from compatgate.core.facts import Facts
from compatgate.core.facts.frameworks import Build, Release
from compatgate.core.facts.node import When
from compatgate.core.facts.platforms import Limit
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


def same_row_exists(context: Context) -> Iterator[Problem]:
    """Check that a release which shares another row names an existing row."""
    table = context.facts.cuda_driver
    known = {toolkit.version.text for toolkit in table.toolkits}
    for release, row in table.same_row.items():
        if row not in known:
            yield Problem("same-row-exists", f"cuda_driver {release}", f"row {row} does not exist")


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
            known = (
                next((r for r in base.releases if r.version == pin.floor), None) if base else None
            )
            if known is None:
                yield Problem("frameworks-pinned", subject, f"{pin.floor} is not known")
                continue
            majors = {build.cuda_major for build in known.builds}
            for build in release.builds:
                if build.cuda_major not in majors:
                    what = f"{pin.floor} has no CUDA {build.cuda_major} build"
                    yield Problem("frameworks-pinned", subject, what)


def _releases(context: Context) -> Iterator[tuple[str, Release]]:
    """Yield the releases of all frameworks, each with the framework's name."""
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


def peak_names(context: Context) -> Iterator[Problem]:
    """Check that peaks are of known products, by canonical name."""
    for name in context.facts.gpu_peaks.gpus:
        if name not in context.facts.gpus.gpus:
            yield Problem("peak-names", f"gpu_peaks {name}", "no product in gpus has this name")


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


def node_references(context: Context) -> Iterator[Problem]:
    """Check that GPUs, parts of nodes and their values that a record names exist."""
    parts, modules = context.facts.node_parts, context.facts.kernel_modules
    conditions = [(one.id, one.when) for one in parts.needs]
    conditions += [(one.id, one.when) for one in parts.defects]
    named = [
        *((f"kernel_modules {row.architecture}", row.gpus) for row in modules.architectures),
        *((f"node_components {one.system}", one.gpus) for one in parts.fabric_systems),
        *((f"node_components {name}", when.gpus) for name, when in conditions),
    ]
    for subject, gpus in named:
        for name in gpus:
            if name not in context.facts.gpus.gpus:
                yield Problem("node-references", subject, f"GPU {name} does not exist")
    for name, when in conditions:
        yield from _node_values(f"node_components {name}", when)


def _node_values(subject: str, when: When) -> Iterator[Problem]:
    named = dict.fromkeys(when.uses, ()) | when.node
    for name, values in named.items():
        component = NODE_COMPONENTS.get(name)
        if component is None:
            yield Problem("node-references", subject, f"a node has no part {name}")
            continue
        for value in values:
            if component.choices and value not in component.choices:
                yield Problem("node-references", subject, f"{name} cannot be {value}")


def kernel_branches(context: Context) -> Iterator[Problem]:
    """Check that kernels and distributions are about driver branches that exist."""
    support = context.facts.kernel_support
    known = context.facts.driver_branches.branches
    branches = {
        *support.minimums,
        *support.distributions,
        *(row.branch for row in support.validated),
        *(row.driver.major for row in support.named),
    }
    for branch in sorted(branches - known.keys()):
        yield Problem("kernel-branches", f"kernel_support {branch}", "no such driver branch")


def platform_gpus(context: Context) -> Iterator[Problem]:
    """Check that a platform's GPUs are known, and go with its processor."""
    gpus = context.facts.gpus.gpus
    for platform in context.facts.platforms.platforms.values():
        subject = f"platforms {platform.name}"
        for name in platform.gpus:
            gpu = gpus.get(name)
            if gpu is None:
                yield Problem("platform-gpus", subject, f"{name} is not in gpus")
            elif gpu.cpu and platform.cpu and gpu.cpu != platform.cpu:
                yield Problem("platform-gpus", subject, f"{name} goes with {gpu.cpu}")


def platform_names(context: Context) -> Iterator[Problem]:
    """Check that machines are recognised as platforms that the facts know."""
    known = context.facts.platforms.platforms
    for machine in context.facts.platform_machines.machines:
        if machine.platform not in known:
            subject = f"platform_machines {machine.platform}"
            yield Problem("platform-names", subject, "is not in platforms")


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
        if limit.advised and not _allows(limit, limit.advised):
            yield Problem("platform-limits", subject, f"advises {limit.advised}, which it refuses")


def _allows(limit: Limit, text: str) -> bool:
    version = parse_version("driver", text) if limit.component == "driver" else None
    return limit.allows(version or parse_node_version(text))


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


def machine_gpus(context: Context) -> Iterator[Problem]:
    """Check that the GPUs of machines are known products, by canonical name."""
    for machine in context.facts.platform_machines.machines:
        for name in (gpu for condition in machine.recognise for gpu in condition.gpus):
            if name not in context.facts.gpus.gpus:
                what = f"no product in gpus is named {name}"
                yield Problem("machine-gpus", f"platform_machines {machine.platform}", what)


def cause_rules(context: Context) -> Iterator[Problem]:
    """Check that each cause has a signature, and that its rules exist."""
    table = context.facts.error_signatures
    shown = {signature.cause for signature in table.signatures}
    for cause in table.causes:
        subject = f"error_signatures causes[id={cause.id}]"
        if cause.id not in shown:
            yield Problem("cause-rules", subject, "no signature shows it")
        for rule in cause.rules:
            if rule not in BY_ID:
                yield Problem("cause-rules", subject, f"rule {rule} does not exist")


def cause_consequences(context: Context) -> Iterator[Problem]:
    """Check that what a cause explains is a kernel message or another cause."""
    table = context.facts.error_signatures
    known = set(context.facts.xid.by_notice) | set(table.by_id)
    for cause in table.causes:
        for name in cause.explains:
            if name not in known or name == cause.id:
                subject = f"error_signatures causes[id={cause.id}].explains"
                yield Problem(
                    "cause-consequences", subject, f"{name} is neither a message nor a cause"
                )


REFERENCES: tuple[Check, ...] = (
    same_row_exists,
    branch_cuda,
    gpu_facts,
    peak_names,
    build_cuda,
    build_code,
    pins_exist,
    frameworks_pinned,
    file_of_component,
    issue_fixes,
    xid_actions,
    cause_rules,
    cause_consequences,
    machine_gpus,
    platform_gpus,
    platform_names,
    platform_limits,
    platform_images,
    node_references,
    kernel_branches,
)
