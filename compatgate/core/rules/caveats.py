"""CG821 to CG833, CG901 and CG902: say what limits a verdict.

A waiver was used, a workload may run elsewhere or on other pools, versions are not known, or
sources disagree.
"""

from __future__ import annotations

from collections.abc import Iterator

from compatgate.core.facts.frameworks import Build
from compatgate.core.frameworks import FrameworkMatch
from compatgate.core.rule import NOT_APPLICABLE, NOTHING, PASS, VERSIONS, Problem, RuleAnswer, rule
from compatgate.core.rule_context import RuleContext


@rule("CG821", "waived", cause="matrix", reads=NOTHING, not_waivable="records waivers")
def waived(context: RuleContext) -> RuleAnswer:
    """A finding was waived: a named exception covers it, with an owner, a reason and an end date.

    The finding stays visible and no longer weighs; this warning says who answers for that and until
    when. A waiver never covers CG901: what is not known cannot be excepted.

    Fix: mend what is waived before the waiver ends.

    Source: the matrix, at the revision that the verdict names.
    """
    del context  # made by the evaluation, when it applies a waiver
    return NOT_APPLICABLE


@rule("CG822", "exempted", cause="matrix", reads=NOTHING)
def exempted(context: RuleContext) -> RuleAnswer:
    """A workload was let in by the Kubernetes hook although its verdict denies it.

    The verdict stays what it is; only the hook's answer is another. It takes a waiver that names
    CG822, is in force, and covers the target and the image, and an object that names that waiver
    (annotation ``compatgate.dev/waiver``) or lies in a namespace that the operator exempts by it.

    Example: a job must start tonight while its registry is down; the waiver ``night-run`` with
    ``rules: [CG822]`` lets it in, with a warning that names the waiver.

    Fix: mend what the verdict says before the waiver ends.

    Source: the matrix, at the revision that the verdict names.
    """
    del context  # the hook says so; a verdict never does
    return NOT_APPLICABLE


@rule("CG831", "target-contradicted", cause="matrix", reads=NOTHING)
def target_contradicted(context: RuleContext) -> RuleAnswer:
    """A workload names a target that its own placement does not leave.

    Namespace, node selector or affinity, and the requested resource say where a pod may come to
    run. The annotation ``compatgate.dev/target`` chooses among the targets that these leave, and
    never another one: the pod would be judged by one target's policy and run on the nodes of
    another. The Kubernetes hook denies such an object whatever the targets' modes.

    Example: a pod selects the nodes of ``prod-a100`` and is annotated ``compatgate.dev/target:
    staging``.

    Fix: take the annotation away, or select the nodes of the target that it names. A waiver that
    names CG831 and covers every target that the placement leaves (``*`` where it leaves none) lets
    the annotation decide; the workload is then judged on the target that it names.

    Source: the matrix: ``match`` and ``pools`` of the targets.
    """
    del context  # the hook says so; a verdict never does
    return NOT_APPLICABLE


@rule("CG832", "no-pool-for-request", cause="matrix", reads=NOTHING)
def no_pool_for_request(context: RuleContext) -> RuleAnswer:
    """No pool of the target has the GPU product that a workload requests.

    A MIG slice is a product of its own: a container that requests ``nvidia.com/mig-1g.10gb`` is
    judged on pools of that slice, one that requests ``nvidia.com/gpu`` on pools of whole GPUs.
    Where a target declares no such pool, nothing is known of what the container would get. The
    Kubernetes hook denies it where the target's mode is ``enforce``, else it warns.

    Example: ``nvidia.com/mig-3g.40gb`` on a target whose slices are all ``1g.10gb``.

    Fix: request what the target has, or declare the pool in the target. A waiver that names CG832
    and covers the target lets the workload be judged on every pool of the target instead.

    Source: the matrix: ``pools`` of the target.
    """
    del context  # the hook says so; a verdict never does
    return NOT_APPLICABLE


@rule(
    "CG833",
    "some-pools",
    cause="matrix",
    reads=NOTHING,
    not_waivable="says what was not asked",
)
def some_pools(context: RuleContext) -> RuleAnswer:
    """The question is about some pools of the target; the others were not judged.

    A question may name ``pools`` of its target; the Kubernetes hook does, where the requested
    resource is in some of them only. The verdict is the worst over these. It is no verdict about
    the whole target and is not signed.

    Fix: ask without ``pools``.

    Source: the question.
    """
    del context  # made by the evaluation
    return NOT_APPLICABLE


@rule("CG901", "incomplete", reads=VERSIONS, not_waivable="says what is not known")
def incomplete(context: RuleContext) -> RuleAnswer:
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
    if context.driver is None:
        message = "the pool's driver is not known: no rule about drivers was checked"
        problems.append(
            Problem("unknown", "driver", message, need="driver=... (nvidia-smi shows it)")
        )
    if context.pool.gpu is None:
        message = "the pool's GPU is not known: no rule about GPUs was checked"
        problems.append(Problem("unknown", "gpu", message, need="gpu=A100-SXM4-80GB, or gpu=sm_80"))
    if context.cuda is None and not any(found.without_cuda for found in context.frameworks):
        problems.append(_no_cuda(context))
    problems += [Problem("unknown", "stack", f"left open: {what}") for what in context.stack.open]
    said = (*context.stack.unread, *context.stack.assumed)
    problems += [Problem("not-checked", "stack", what) for what in said]
    return [*problems, *_measured(context)] or PASS


def _measured(context: RuleContext) -> Iterator[Problem]:
    """Report the packages that rest on a wheel without a record in the catalog."""
    for package in context.packages:
        record = package.record
        if package.on_request and record:
            proof = f", sha256 {record.sha256}" if record.sha256 else ""
            what = f"its wheel was measured on request: {record.wheel}{proof}"
            message = f"{package.title} has no record in the facts; {what}"
            yield Problem("not-checked", package.name, message, have=package.version.text)


def _no_cuda(context: RuleContext) -> Problem:
    plugins = context.stack.packages.keys()
    message, hints = "the stack's CUDA is not known", []
    for found in context.frameworks:
        builds = [one for one in found.release.builds if one.listed] if found.release else []
        of_plugins = {name for build in builds for name in build.plugins}
        lacks_plugin = bool(of_plugins) and plugins.isdisjoint(of_plugins)
        if lacks_plugin:
            message += f": {found.name} without its plugin for CUDA computes on the CPU alone"
        hints += [_stated_as(found, build, lacks_plugin=lacks_plugin) for build in builds]
    need = f"cuda=..., or the build: {', '.join(hints)}" if hints else "cuda=... (as in cuda=12.4)"
    return Problem("unknown", "cuda", message, need=need)


def _stated_as(found: FrameworkMatch, build: Build, *, lacks_plugin: bool) -> str:
    """Write how a stack states this build."""
    if build.plugins and lacks_plugin:
        return f"{build.plugins[0]}={found.version.public}"
    label = build.label
    return f"{found.name}={found.version.public}+{label}" if label else f"cuda={build.cuda_major}.x"


@rule("CG902", "witness-conflict")
def witness_conflict(context: RuleContext) -> RuleAnswer:
    """What the stack was read from contradicts itself (a warning).

    A lockfile, a bill of materials or a folder has several witnesses of a version: a variable, a
    package, a library's name. Where they disagree, the surer one decides, and this says so.

    Fix: rebuild, so that one version is left.

    Source: the witnesses, named in the message.
    """
    if not context.stack.conflicts:
        return NOT_APPLICABLE
    return [Problem("warn", "stack", message) for message in context.stack.conflicts]
