"""CG601, CG701, CG821 to CG835, CG901 and CG902: refusals, known issues and limits of a verdict.

An image refuses a host by its own requirements; a combination is known to break; a waiver was
used; a workload may run elsewhere or on other pools; versions are not known, or sources disagree.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from compatgate.core import changes
from compatgate.core.constraints import parse_constraint
from compatgate.core.facts.frameworks import Build, KnownIssue
from compatgate.core.facts.nvidia import Source
from compatgate.core.parts import DRIVER, FORWARD, NOTHING, VERSIONS, Candidate
from compatgate.core.rule import (
    NOT_APPLICABLE,
    PASS,
    Answer,
    FindingOutcome,
    Problem,
    report_left_out,
    rule,
)
from compatgate.core.rule_context import RuleContext
from compatgate.core.stack_facts import FrameworkMatch
from compatgate.core.versions import format_parts

if TYPE_CHECKING:
    from compatgate.core.requirements.model import Impl, MalformedRequirement
    from compatgate.core.requirements.model import RequirementAnswer as Requirement

REQUIRE_SOURCE = Source(
    "NVIDIA/nvidia-container-toolkit internal/requirements; libnvidia-container src/cli/dsl.c",
    "https://github.com/NVIDIA/nvidia-container-toolkit",
)


@rule("CG601", "require-cuda", reads=DRIVER)
def require_cuda(context: RuleContext) -> Answer:
    """The image's ``NVIDIA_REQUIRE_*`` expressions are not met on the pool.

    NVIDIA's container runtime refuses to start such a container. This check is independent of the
    other rules: an image can refuse to start where its programs would run, and can start where
    they fail. The result of NVIDIA's Go toolkit decides. Where the Go toolkit cannot parse the
    expression (it refuses the leading zero of ``driver>=535.104.05``), the result of the C library
    decides. Where the two disagree, the rule warns. Data-center GPUs changed their brand from
    Tesla to Nvidia across driver branches: the expression must hold for both.
    ``NVIDIA_DISABLE_REQUIRE`` turns a refusal into a warning.

    Example: ``cuda>=12.4 brand=tesla,driver>=470,driver<471`` on driver 535.104.05 is refused.

    Fix: raise the driver, or rebuild the image on an older CUDA.

    Source: NVIDIA/nvidia-container-toolkit and NVIDIA/libnvidia-container.
    """
    requirements = context.stack.require
    if not requirements:
        return NOT_APPLICABLE
    if context.driver is None:
        message = "the driver is not known, so the image's requirements were not checked"
        return report_left_out("require", message)
    from compatgate.core.requirements.model import MalformedRequirement

    go, c = _check_brands(context, "go"), _check_brands(context, "c")
    decides = c if isinstance(go, MalformedRequirement) else go
    if isinstance(decides, MalformedRequirement):
        message = f"the container runtime cannot read the image's requirements: {decides.detail}"
        return _report_refusal(context, message)
    if not decides.satisfied:
        return _report_refusal(
            context, f"the container runtime refuses this image here: {decides.reason}"
        )
    other = go if decides is c else c
    if isinstance(other, MalformedRequirement):
        name = "the Go toolkit" if decides is c else "libnvidia-container"
        message = f"{name} cannot read the image's requirements: {other.detail}"
    elif not other.satisfied:
        refuses = "libnvidia-container would refuse this image, the Go toolkit would not"
        message = f"{refuses}: {other.reason}"
    else:
        return PASS
    return Problem("warn", "require", message, source=REQUIRE_SOURCE)


def _report_refusal(context: RuleContext, message: str) -> Problem:
    outcome: FindingOutcome = "fail"
    if context.stack.disable_require:
        outcome = "warn"
        message += " (NVIDIA_DISABLE_REQUIRE is set: the container starts anyway)"
    elif not context.driver_cuda_is_exact:
        outcome = "unknown"
        message += " (the CUDA version of this driver is not published, it may be newer)"
    return Problem(
        outcome,
        "require",
        message,
        have=f"driver {context.driver}, {_describe_cuda(context)}",
        need=" and ".join(context.stack.require),
        source=REQUIRE_SOURCE,
        candidates=lambda: changes.newer_branches(context),
    )


def _check_brands(context: RuleContext, impl: Impl) -> Requirement | MalformedRequirement:
    """Check every brand that this GPU may report; return the first refusal, if any."""
    from compatgate.core.requirements import check
    from compatgate.core.requirements.model import MalformedRequirement, Properties
    from compatgate.core.requirements.model import RequirementAnswer as Requirement

    assert context.driver is not None  # noqa: S101 - the caller checked
    answer = Requirement(True, "")
    for brand in (context.pool.gpu.brands if context.pool.gpu else ()) or (None,):
        host = Properties(
            cuda=format_parts(context.driver_cuda) if context.driver_cuda else None,
            driver=context.driver.text,
            arch=format_parts(context.capability) if context.capability else None,
            brand=brand,
        )
        try:
            answer = check(context.stack.require, host, impl)
        except MalformedRequirement as error:
            return error
        if not answer.satisfied:
            return answer
    return answer


def _describe_cuda(context: RuleContext) -> str:
    return f"CUDA {format_parts(context.driver_cuda)}" if context.driver_cuda else "CUDA unknown"


@rule("CG701", "known-issue", reads=VERSIONS | FORWARD | {"arch"}, states_outcome=True)
def known_issue(context: RuleContext) -> Answer:
    """The combination is on the known-issues list.

    The list is data, and each issue has a link: ``compatgate facts show known_issues``. Operators
    add their own issues in an overlay. An issue that depends on something that a stack does not
    state, such as a variable, is unknown.

    Fix: follow the advice in the record of the issue.

    Source: the link of the issue.
    """
    if not context.facts.known_issues.issues:
        return NOT_APPLICABLE
    return [
        problem
        for issue in context.issues
        if _applies(context, issue)
        for problem in _report_issue(context, issue)
    ] or PASS


def _applies(context: RuleContext, issue: KnownIssue) -> bool:
    """Return whether an issue of the stack is about the pool's driver, and nothing avoids it."""
    if not context.stack.versions.keys().isdisjoint(issue.unless):
        return False
    if issue.behind and not _is_behind(context):
        return False
    text = issue.components.get("driver")
    if text is None:
        return True
    return context.driver is not None and parse_constraint("driver", text).allows(context.driver)


def _is_behind(context: RuleContext) -> bool:
    """Tell whether the driver reports an older CUDA than the stack's, and brings no newer one."""
    cuda, reported = context.cuda, context.driver_cuda
    if cuda is None or reported is None or context.forward is not None:
        return False
    return context.driver_cuda_is_exact and reported < cuda.major_minor


def _report_issue(context: RuleContext, issue: KnownIssue) -> tuple[Problem]:
    component = next(iter(issue.components))
    have = context.driver if component == "driver" else context.stack.get(component)
    if issue.alone and _has_other_users(context, issue):
        message = f"{issue.id} {issue.title}: whether {component} is what uses the GPU is not known"
        return report_left_out(component, message)
    problem = Problem(
        issue.outcome,
        component,
        f"{issue.id} {issue.title}: {issue.message}",
        have=have.text if have else None,
        need=issue.advice or None,
        source=issue.source,
        candidates=lambda: _propose_fixes(issue),
    )
    return (problem,)


def _has_other_users(context: RuleContext, issue: KnownIssue) -> bool:
    """Tell whether something that an issue does not name uses the GPU: it may be all that does."""
    carries = context.facts.packages.carries
    packages = [
        one.name for one in context.packages if carries(one.name) not in ("nothing", "bindings")
    ]
    names = [
        *packages,
        *(name for name in context.stack.versions if name in context.facts.frameworks),
    ]
    return any(name not in issue.components for name in names)


def _propose_fixes(issue: KnownIssue) -> Iterator[Candidate]:
    for change in issue.fixes:
        yield Candidate(dict(change), changes.describe_change(change))


@rule("CG821", "waived", cause="matrix", reads=NOTHING, not_waivable="records waivers")
def waived(context: RuleContext) -> Answer:
    """A finding was waived: a named exception covers it, with an owner, a reason and an end date.

    The finding stays visible, but no longer affects the verdict. This warning names the owner of
    the waiver and its last day. A waiver never covers CG901: missing knowledge cannot be waived.

    Fix: fix the waived finding before the waiver ends.

    Source: the matrix, at the revision that the verdict names.
    """
    del context  # made by the evaluation, when it applies a waiver
    return NOT_APPLICABLE


@rule("CG822", "exempted", cause="matrix", reads=NOTHING)
def exempted(context: RuleContext) -> Answer:
    """The Kubernetes hook admitted a workload although its verdict denies it.

    The verdict does not change; only the answer of the hook does. This needs a valid waiver that
    names CG822 and covers the target and the image. The object must name this waiver (annotation
    ``compatgate.dev/waiver``), or be in a namespace that the operator exempts with this waiver.

    Example: a job must start tonight while its registry is down; the waiver ``night-run`` with
    ``rules: [CG822]`` admits it, with a warning that names the waiver.

    Fix: fix the findings of the verdict before the waiver ends.

    Source: the matrix, at the revision that the verdict names.
    """
    del context  # the hook says so; a verdict never does
    return NOT_APPLICABLE


@rule("CG831", "target-contradicted", cause="matrix", reads=NOTHING)
def target_contradicted(context: RuleContext) -> Answer:
    """A workload names a target on whose nodes Kubernetes cannot place it.

    Namespace, node selector or affinity, and the requested resource decide where a pod can run.
    The annotation ``compatgate.dev/target`` can only choose among these targets. With any other
    target, the policy of one target would judge the pod, and the pod would run on the nodes of
    another. The Kubernetes hook denies this object in every mode of the targets.

    Example: a pod selects the nodes of ``prod-a100`` and is annotated ``compatgate.dev/target:
    staging``.

    Fix: remove the annotation, or select the nodes of the named target. A waiver that names CG831
    and covers every target where the pod can run (``*`` if it can run on none) lets the annotation
    decide; the workload is then judged on the named target.

    Source: the matrix: ``match`` and ``pools`` of the targets.
    """
    del context  # the hook says so; a verdict never does
    return NOT_APPLICABLE


@rule("CG832", "no-pool-for-request", cause="matrix", reads=NOTHING)
def no_pool_for_request(context: RuleContext) -> Answer:
    """No pool of the target has the GPU product that a workload requests.

    A MIG slice is a separate product: a container that requests ``nvidia.com/mig-1g.10gb`` is
    judged on pools of that slice, one that requests ``nvidia.com/gpu`` on pools of whole GPUs. If
    the target declares no pool with the product, the GPU of the container is not known. The
    Kubernetes hook denies the workload if the target's mode is ``enforce``, and warns otherwise.

    Example: ``nvidia.com/mig-3g.40gb`` on a target whose slices are all ``1g.10gb``.

    Fix: request a product that the target has, or declare the pool in the target. A waiver that
    names CG832 and covers the target lets the workload be judged on every pool of the target
    instead.

    Source: the matrix: ``pools`` of the target.
    """
    del context  # the hook says so; a verdict never does
    return NOT_APPLICABLE


@rule("CG834", "no-node-for-pod", cause="matrix", reads=NOTHING)
def no_node_for_pod(context: RuleContext) -> Answer:
    """No known node accepts a workload, although its target has the requested GPU.

    Where nodes of a pool are known (node reports), labels, taints and resources of these nodes say
    whether a pod can run on them. If every pool of the targets has known nodes, and no node
    accepts the pod, its GPU and driver are not known. The Kubernetes hook denies a pod if the
    target's mode is ``enforce``, and warns otherwise. It only warns about templates of pods: a
    queue can add selectors and tolerations before the pod exists.

    Example: all nodes of ``prod-a100`` have the taint ``team=research:NoSchedule``, and the pod
    does not tolerate it.

    Fix: tolerate the taint, select existing nodes, or report new nodes (``compatgate k8s nodes
    --report``). A waiver that names CG834 and covers the target lets the workload be judged on
    every pool of the target instead.

    Source: node reports; Kubernetes documentation, "Assigning Pods to Nodes" and "Taints and
    Tolerations".
    """
    del context  # the hook says so; a verdict never does
    return NOT_APPLICABLE


@rule(
    "CG833", "some-pools", cause="matrix", reads=NOTHING, not_waivable="names what was not checked"
)
def some_pools(context: RuleContext) -> Answer:
    """The question is about some pools of the target; the others were not judged.

    A question can name ``pools`` of its target. The Kubernetes hook does so if only some pools
    have the requested resource. The verdict is the worst over the named pools. It does not cover
    the whole target, and the gate does not sign it.

    Fix: ask without ``pools``.

    Source: the question.
    """
    del context  # made by the evaluation
    return NOT_APPLICABLE


@rule(
    "CG835",
    "admission-note",
    cause="matrix",
    reads=NOTHING,
    not_waivable="names what was not judged",
)
def admission_note(context: RuleContext) -> Answer:
    """Kubernetes admission says more about an object than the verdicts on its stacks.

    Examples: a GPU workload matches no target, an annotation cannot be parsed, a resource claim is
    assumed to be a GPU, or no gate answered. ``compatgate k8s check`` shows these findings at the
    line of the manifest; the webhook returns them as its denial or as warnings.

    Example: a Job in a namespace of no target requests ``nvidia.com/gpu``. ``--unmatched`` decides
    whether the Job is denied.

    Fix: follow the message, for example add a node selector or the annotation
    ``compatgate.dev/target``.

    Source: the object, and ``match`` of the targets.
    """
    del context  # the check of manifests says so; a verdict never does
    return NOT_APPLICABLE


@rule("CG901", "incomplete", reads=VERSIONS, not_waivable="names what is not known")
def incomplete(context: RuleContext) -> Answer:
    """A value that the decision needs is not known; the message names it and how to provide it.

    Driver, GPU and CUDA are always needed, and so is every version that a lockfile, an SBOM or an
    image leaves open. If CUDA is not stated, the version label of a framework gives it
    (``torch=2.4.1+cu121``). Without a label, the rule assumes the wheel of the package index, and
    the message says so. If no build is the default (torch 0.4.1), all known builds are judged. If
    all of them run, the verdict is that of the build with the newest CUDA. A stated JAX is judged
    with its plugins, a stated CuPy as its package for each CUDA: with the first that runs, or as a
    failure if none does. A CUDA that is one of
    several which an installation may have is a warning: the wheel loads any minor (ONNX Runtime),
    or conda has builds for several (OpenMM). Two notes do not affect the verdict: an image was
    named but not read, and a package was judged by a wheel that was measured on request (with the
    digest of the wheel).

    Fix: state the missing value.

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
    if context.cuda is None and not _needs_no_cuda(context):
        problems.append(_report_no_cuda(context))
    problems += [Problem("unknown", "stack", f"left open: {what}") for what in context.stack.open]
    said = (*context.stack.unread, *context.stack.assumed)
    if context.stack.assumed and _is_cuda_a_guess(context):
        need = "cuda=..., the CUDA that is installed"
        problems += [Problem("warn", "cuda", what, need=need) for what in context.stack.assumed]
        said = context.stack.unread
    problems += [one for what in said for one in report_left_out("stack", what)]
    return [*problems, *_report_measured(context)] or PASS


def _needs_no_cuda(context: RuleContext) -> bool:
    """Tell whether nothing of the stack uses CUDA, or nothing of it is known.

    The maker of a program may state the driver that it needs, and not its CUDA.
    """
    stack, carries = context.stack, context.facts.packages.carries
    packages = context.packages
    if packages and all(one.is_judged_by_driver for one in packages):
        return True
    return (
        (bool(stack.open) and not stack.versions)
        or any(found.without_cuda for found in context.frameworks)
        or any(carries(package.name) == "driver" for package in packages)
    )


def _is_cuda_a_guess(context: RuleContext) -> bool:
    """Tell whether the assumed CUDA is one of several that an installation may have.

    A wheel may bring none and load any minor (ONNX Runtime), and conda have builds for several.
    """
    for found in context.frameworks:
        build, release = found.build, found.release
        if build and release and not (build.cuda or build.plugins or "torch" in release.pins):
            return True
    return any(one.toolkits for package in context.packages for one in package.statements)


def _report_measured(context: RuleContext) -> Iterator[Problem]:
    """Report the packages that rest on a wheel without a record in the catalog."""
    for package in context.packages:
        record = package.record
        if package.on_request and record:
            proof = f", sha256 {record.sha256}" if record.sha256 else ""
            what = f"its wheel was measured on request: {record.wheel}{proof}"
            message = f"{package.title} has no record in the facts; {what}"
            yield from report_left_out(package.name, message)


def _report_no_cuda(context: RuleContext) -> Problem:
    plugins = context.stack.packages.keys()
    message, hints = "the stack's CUDA is not known", []
    for found in context.frameworks:
        builds = [one for one in found.release.builds if one.listed] if found.release else []
        of_plugins = {name for build in builds for name in build.plugins}
        lacks_plugin = bool(of_plugins) and plugins.isdisjoint(of_plugins)
        if lacks_plugin:
            message += f": {found.name} without its plugin for CUDA computes only on the CPU"
        hints += [_write_build(found, build, lacks_plugin=lacks_plugin) for build in builds]
    need = f"cuda=..., or the build: {', '.join(hints)}" if hints else "cuda=... (as in cuda=12.4)"
    return Problem("unknown", "cuda", message, need=need)


def _write_build(found: FrameworkMatch, build: Build, *, lacks_plugin: bool) -> str:
    if build.plugins and lacks_plugin:
        return f"{build.plugins[0]}={found.version.public}"
    label = build.label
    return f"{found.name}={found.version.public}+{label}" if label else f"cuda={build.cuda_major}.x"


@rule("CG902", "witness-conflict")
def witness_conflict(context: RuleContext) -> Answer:
    """Two sources of the stack contradict each other (a warning).

    A lockfile, an SBOM or a folder can state a version several times: in a variable, a package, or
    the name of a library. If they disagree, the more reliable source decides, and this finding
    names both.

    Fix: rebuild, so that only one version remains.

    Source: the sources that the message names.
    """
    if not context.stack.conflicts:
        return NOT_APPLICABLE
    return [Problem("warn", "stack", message) for message in context.stack.conflicts]
