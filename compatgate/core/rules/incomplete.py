"""CG901 and CG902: what is not known and would be needed, and where witnesses disagree."""

from __future__ import annotations

from collections.abc import Iterator

from compatgate.core.case import Case
from compatgate.core.parts import VERSIONS
from compatgate.core.rules.base import NOT_APPLICABLE, PASS, Answer, Problem, rule


@rule("CG901", "incomplete", reads=VERSIONS)
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
    if case.cuda is None:
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
    builds = [
        f"{found.name}={found.version.public}+{build.label}"
        if build.label
        else f"cuda={build.cuda_major}.x"
        for found in case.frameworks
        if found.release
        for build in found.release.builds
        if build.listed
    ]
    hint = (
        f"cuda=..., or the build: {', '.join(builds)}" if builds else "cuda=... (as in cuda=12.4)"
    )
    return Problem("unknown", "cuda", "the stack's CUDA is not known", need=hint)


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
