"""CG901 and CG902: what is not known and would be needed, and where witnesses disagree."""

from __future__ import annotations

from collections.abc import Iterator

from compatgate.core.case import Case
from compatgate.core.facts import Build
from compatgate.core.frameworks import Found
from compatgate.core.parts import VERSIONS
from compatgate.core.rules.base import NOT_APPLICABLE, PASS, Answer, Problem, rule


@rule("CG901", "incomplete", reads=VERSIONS, not_waivable="says what is not known")
def incomplete(case: Case) -> Answer:
    """Something that the decision needs is not known; names exactly what, and how to provide it.

    The driver, the GPU and the CUDA are always needed; so is what a lockfile, a bill of materials
    or an image leaves open. CUDA is taken from a framework's version label (``torch=2.4.1+cu121``)
    when it is not stated; without a label, the package index's own wheel is assumed, and said. An
    image that is named but was not read is said, without weight; so is a package that is judged by
    a wheel that was measured on request, with the wheel's digest.

    Fix: state what is missing.

    Source: the question itself.
    """
    problems = []
    if case.driver is None:
        message = "the pool's driver is not known: no rule about drivers was checked"
        problems.append(
            Problem("unknown", "driver", message, need="driver=... (nvidia-smi shows it)")
        )
    if case.pool.gpu is None:
        message = "the pool's GPU is not known: no rule about GPUs was checked"
        problems.append(Problem("unknown", "gpu", message, need="gpu=A100-SXM4-80GB, or gpu=sm_80"))
    if case.cuda is None and not any(found.without_cuda for found in case.frameworks):
        problems.append(_no_cuda(case))
    problems += [Problem("unknown", "stack", f"left open: {what}") for what in case.stack.open]
    said = (*case.stack.unread, *case.stack.assumed)
    problems += [Problem("not-checked", "stack", what) for what in said]
    return [*problems, *_measured(case)] or PASS


def _measured(case: Case) -> Iterator[Problem]:
    """Say which packages rest on a wheel that no record of the catalog describes."""
    for package in case.packages:
        record = package.record
        if package.on_request and record:
            proof = f", sha256 {record.sha256}" if record.sha256 else ""
            what = f"its wheel was measured on request: {record.wheel}{proof}"
            message = f"{package.title} has no record in the facts; {what}"
            yield Problem("not-checked", package.name, message, have=package.version.text)


def _no_cuda(case: Case) -> Problem:
    plugins = case.stack.packages.keys()
    message, hints = "the stack's CUDA is not known", []
    for found in case.frameworks:
        builds = [one for one in found.release.builds if one.listed] if found.release else []
        of_plugins = {name for build in builds for name in build.plugins}
        lacks_plugin = bool(of_plugins) and plugins.isdisjoint(of_plugins)
        if lacks_plugin:
            message += f": {found.name} without its plugin for CUDA computes on the CPU alone"
        hints += [_stated_as(found, build, lacks_plugin=lacks_plugin) for build in builds]
    need = f"cuda=..., or the build: {', '.join(hints)}" if hints else "cuda=... (as in cuda=12.4)"
    return Problem("unknown", "cuda", message, need=need)


def _stated_as(found: Found, build: Build, *, lacks_plugin: bool) -> str:
    """Write how a stack states this build."""
    if build.plugins and lacks_plugin:
        return f"{build.plugins[0]}={found.version.public}"
    label = build.label
    return f"{found.name}={found.version.public}+{label}" if label else f"cuda={build.cuda_major}.x"


@rule("CG902", "witness-conflict")
def witness_conflict(case: Case) -> Answer:
    """What the stack was read from contradicts itself (a warning).

    A lockfile, a bill of materials or a folder has several witnesses of a version: a variable, a
    package, a library's name. Where they disagree, the surer one decides, and this says so.

    Fix: rebuild, so that one version is left.

    Source: the witnesses, named in the message.
    """
    if not case.stack.conflicts:
        return NOT_APPLICABLE
    return [Problem("warn", "stack", message) for message in case.stack.conflicts]
