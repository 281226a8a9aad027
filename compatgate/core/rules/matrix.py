"""CG801 to CG804, CG811 to CG813: check what this organisation has blessed and measured.

Entries of the matrix bless a stack; canary runs on staging GPUs are the evidence for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from compatgate.core import changes
from compatgate.core.binding import ASSURANCES
from compatgate.core.components import join_words, label_of, sort_components
from compatgate.core.matrix import Entry, Evidence
from compatgate.core.parts import EVIDENCE, VERSIONS, Candidate
from compatgate.core.pooled_runs import TOO_OLD
from compatgate.core.revocations import find_revocation
from compatgate.core.rule import NOT_APPLICABLE, PASS, Answer, Problem, rule
from compatgate.core.rule_context import RuleContext

_MAX_NAMED = 3  # GPUs of an entry that a message names


@rule("CG801", "not-blessed", cause="matrix", reads=VERSIONS)
def not_blessed(context: RuleContext) -> Answer:
    """The target's policy requires a blessed entry of the matrix, and none matches.

    An entry matches when every component that it constrains is in the stack (or is the pool's
    driver) and meets the constraint, and the pool's GPU is one of its ``gpus``, if the entry names
    any. A MIG slice is another product than the whole GPU. The most specific match decides. A
    candidate is not blessed yet.

    With ``entries: strict``, an entry blesses a stack only if it names every GPU package of the
    stack, including frameworks; the message lists the missing names. A revoked entry counts in any
    case.

    Fix: use a stack of the nearest blessed entry, or propose an entry; name the packages in the
    entry, or waive the rule for them.

    Source: the matrix, at the revision that the verdict names.
    """
    if not context.policy.require_entry:
        return NOT_APPLICABLE
    best = context.deciding
    if best:  # revoked and deprecated speak for themselves
        unnamed = [] if best.status == "revoked" else context.unnamed(best)
        return (_report_unnamed(context, best, unnamed),) if unnamed else PASS
    where = f"{context.target.name or 'this target'}"
    if context.entries:
        best = context.entries[0]
        message = f"entry {best.name} matches but is a candidate: not yet blessed for {where}"
        return Problem(
            "fail",
            "entry",
            message,
            have=best.name,
            need="status blessed",
            candidates=lambda: changes.nearest_entry(context),
        )
    nearest = None if context.brief else context.nearest
    message = f"no entry of the matrix matches this stack on {where}"
    if nearest:
        missing = sort_components(nearest.differences(context.stack, context.pool))
        difference = _describe_difference(context, nearest, missing)
        message += f"; the nearest is {nearest.name}, which {difference}"
    suites = ", ".join(context.policy.canary.suites)
    message += f"; to bless it as it is, propose an entry and run suite {suites} on staging"
    parts = nearest.components if nearest else {}
    need = ", ".join(f"{name} {parts[name]}" for name in sort_components(parts))
    return Problem(
        "fail",
        "entry",
        message,
        need=need or "a blessed entry",
        candidates=lambda: changes.nearest_entry(context),
    )


def _report_unnamed(context: RuleContext, entry: Entry, names: Sequence[str]) -> Problem:
    missing = sort_components(names)
    listed = ", ".join(missing)
    stated = ", ".join(f'{name}: "=={context.stack.versions[name].text}"' for name in missing)
    return Problem(
        "fail",
        "entry",
        f"entry {entry.name} matches, but does not name {listed}; the policy says entries: strict:"
        f" add {stated} to the components of the entry, or waive CG801 for them",
        have=entry.name,
        need=f"an entry that names {listed}",
        candidates=lambda: changes.nearest_entry(context),
    )


@rule("CG802", "revoked", cause="matrix", reads=VERSIONS)
def revoked(context: RuleContext) -> Answer:
    """The best matching entry was revoked: this combination is known to be bad here.

    A revocation also matches a stack that leaves out a part of the entry or the label of a build,
    if nothing contradicts it: CUDA 12.1 and an unlabelled ``torch=2.4.1`` are ``2.4.1+cu121``.
    The facts complete missing parts with the pins of the stack's frameworks. What stays open makes
    the answer unknown. A part is known to be absent if the image was read without finding it, if a
    lockfile does not list it, or if the stack is one of PyTorch, TensorFlow and JAX and the entry
    is of another. A stack that states no part of the entry is not judged by it.

    Fix: use the entry's replacement, or the nearest blessed entry; state the missing part.

    Source: the matrix, at the revision that the verdict names.
    """
    found = find_revocation(context)
    if found is None:
        return PASS if context.deciding else NOT_APPLICABLE
    if not found.doubts:
        return _status_problem(context, found.entry, "fail")
    entry, doubts = found.entry, found.doubts
    reason = f" ({entry.reason})" if entry.reason else ""
    open_parts = "; ".join(f"{name} {doubts[name]}" for name in sort_components(doubts))
    return Problem(
        "unknown",
        "entry",
        f"this may be entry {entry.name}, which is revoked{reason}: {open_parts}",
        have=entry.name,
        need=f"state {', '.join(sort_components(doubts))}, or name the image to be read",
    )


@rule("CG803", "deprecated", cause="matrix", reads=VERSIONS)
def deprecated(context: RuleContext) -> Answer:
    """The best matching entry is deprecated (a warning).

    Fix: use the entry's replacement.

    Source: the matrix, at the revision that the verdict names.
    """
    best = context.deciding
    if best is None:
        return NOT_APPLICABLE
    if best.status != "deprecated":
        return PASS
    return _status_problem(context, best, "warn")


@rule("CG804", "assumed-pins", cause="matrix", reads=VERSIONS)
def assumed_pins(context: RuleContext) -> Answer:
    """The stack leaves out libraries that an entry names; those that its wheel pins are assumed.

    ``torch=2.8.0+cu128`` installs the cuDNN and NCCL that its wheel pins. Where the target requires
    an entry, and one matches with these versions, the stack counts as blessed by it, with this
    warning. Nothing is assumed for a stack that names an image: what the image holds counts, and
    an image that was not read may hold anything. A policy with ``entries: strict`` takes no
    assumption.

    Example: ``cuda=12.8,torch=2.8.0`` is blessed by an entry with ``cudnn: "9.10.*"``, if its cuDNN
    is the wheel's.

    Fix: state the versions, or name the image to be read.

    Source: package metadata of each build; the matrix, at the revision that the verdict names.
    """
    pins, entry = context.assumed_pins, context.deciding
    if not pins or entry is None:
        return NOT_APPLICABLE
    names = join_words([label_of(name) for name in pins])
    versions = join_words([f"{label_of(name)} {version}" for name, version in pins.items()])
    wheels = join_words([one.title for one in context.built if one.name not in pins])
    are = "is" if len(pins) == 1 else "are"
    return Problem(
        "warn",
        next(iter(pins)),
        f"{entry.status} as {entry.name}, if its {names} {are} the wheel's"
        f" ({versions} for {wheels})",
        have="not stated",
        need=versions,
        candidates=lambda: [
            Candidate({name: pin.text for name, pin in pins.items()}, f"state {versions}")
        ],
    )


def _status_problem(context: RuleContext, entry: Entry, outcome: str) -> Problem:
    reason = f": {entry.reason}" if entry.reason else ""
    instead = f"; use {entry.replacement} instead" if entry.replacement else ""
    return Problem(
        outcome,  # type: ignore[arg-type]
        "entry",
        f"entry {entry.name} is {entry.status}{reason}{instead}",
        have=entry.name,
        need=entry.replacement or "a blessed entry",
        candidates=lambda: changes.nearest_entry(context, replacing=entry),
    )


def _describe_difference(context: RuleContext, entry: Entry, names: Sequence[str]) -> str:
    """Say in what an entry differs, and what it asks for that the stack does not state."""
    unsaid = [name for name in names if name != "driver" and context.stack.get(name) is None]
    other = [name for name in names if name not in unsaid]
    parts = []
    if not entry.is_for(context.pool):
        gpus = ", ".join(entry.gpus[:_MAX_NAMED])
        gpus += ", ..." if len(entry.gpus) > _MAX_NAMED else ""
        own = context.pool.gpu.sku if context.pool.gpu else "this GPU"
        parts.append(f"is for {gpus}, not for {own}")
    if other:
        parts.append(f"differs in {', '.join(other)}")
    if left_out := context.unnamed(entry):
        parts.append(f"does not name {', '.join(sort_components(left_out))}")
    if unsaid:
        parts.append(f"requires {', '.join(unsaid)}, which the stack does not state")
    return " and ".join(parts)


@rule("CG811", "canary-missing", cause="evidence", reads=EVIDENCE)
def canary_missing(context: RuleContext) -> Answer:
    """The policy requires canary evidence, and no judged run of a suite covers this stack and SKU.

    A run covers an image with the same GPU content: components, GPU packages with their file
    lists, GPU code and interpreter. A rebuild that changes only application code needs no new run.
    If the content of the image or of the runs is unknown, a run covers the versions that it
    measured inside the container; a run of a framework counts only for stacks with this framework.
    With `canary.bind: image`, only runs of the image's own digest count; with `versions`, all runs
    with these versions count. The GPU SKU must be the same (a MIG slice is a separate SKU). These
    runs are not evidence: inconclusive runs, runs that a person has discarded, and runs outside a
    container (the process executor, for development) unless the policy has
    `canary.acceptDevelopment: true`. An imported result counts if `canary.imported` names its
    source for the suite. With `canary.assurance`, a passed run counts only with at least this
    assurance: `challenged` (its lines are signed) or `witnessed` (the worker also saw its
    processes, libraries and GPU).

    Fix: run the suite on staging with this image.

    Source: canary runs; the verdict names them.
    """
    if not context.evidence:
        return NOT_APPLICABLE
    problems = []
    by_image = context.policy.canary.bind == "image"
    what = "this image (canary.bind: image)" if by_image else "this stack"
    for suite, found in context.evidence.items():
        if found.pool is not None:
            continue
        message = f"no canary run of suite {suite} is known for {what} on {context.gpu_name}"
        message += _mention_refused_run(context, found.uncounted)
        if others := found.coverage.others:  # they have the stack's versions
            named, more = ", ".join(run.id for run in others[:_MAX_NAMED]), len(others) - _MAX_NAMED
            named += f" and {more} more" if more > 0 else ""
            of = (
                "another image" if found.coverage.by == "image" else "images with other GPU content"
            )
            message += f"; {named} tested {of} with these versions"
        need = f"a passed run of suite {suite} on staging"
        problems.append(Problem("fail", "canary", message, need=need))
    return problems or PASS


@rule("CG812", "canary-stale", cause="evidence", reads=EVIDENCE)
def canary_stale(context: RuleContext) -> Answer:
    """The passed runs are too old, or used another driver or an earlier version of the suite.

    A driver change on the target makes older evidence stale: compatible is not identical. A change
    of the suite, or of the files of its workloads, makes the evidence of earlier runs stale: they
    tested something else.

    Fix: run the suite again on staging, with the pool's driver.

    Source: canary runs; the verdict names them.
    """
    if not context.evidence:
        return NOT_APPLICABLE
    problems = []
    for suite, found in context.evidence.items():
        pooled = found.pool
        if pooled is not None and pooled.state == "passed" and pooled.until is not None:
            context.holds_until(_format_moment(pooled.until))
        if pooled is None or pooled.state != "stale":
            continue
        run = pooled.newest
        why = pooled.why
        if why == TOO_OLD:
            why = f"of {_format_day(run.finished)} {why}"
        need = f"a passed run of suite {suite} on driver {context.driver}"
        message = f"run {run.id} of suite {run.suite} {why}"
        problems.append(Problem("fail", "canary", message, have=run.id, need=need))
    return problems or PASS


@rule("CG813", "canary-failed", cause="evidence", reads=EVIDENCE)
def canary_failed(context: RuleContext) -> Answer:
    """A judged run of a suite failed for this stack on this SKU.

    The rule pools all runs that the policy still counts. One failure denies, even if other runs
    passed before or after: repeating a run until it passes does not help. The failure of one GPU
    content denies only images with this content. If the content of a stack is not known, every
    failure with its versions denies the stack. If no run was on this driver, a failed run on
    another driver still denies.

    Fix: read in the run what failed, and correct the image. A corrected image has another content,
    and needs its own run. If the image did not cause the failure, discard the run with a reason:
    `compatgate canary discard RUN --reason TEXT`.

    Source: canary runs; the verdict names them.
    """
    if not context.evidence:
        return NOT_APPLICABLE
    problems = []
    for suite, found in context.evidence.items():
        pooled = found.pool
        if pooled is None or pooled.state != "failed":
            continue
        if pooled.until is not None:
            context.holds_until(_format_moment(pooled.until))
        run = pooled.failed[0]
        message = f"run {run.id} of suite {run.suite} failed on {_format_day(run.finished)}"
        if len(pooled.runs) > 1:
            message += f"; {pooled.words}, and one failure denies"
        if found.coverage.by == "versions" and any(one.content for one in pooled.runs):
            message += "; they cover the stack by its versions: name its image to be judged by its "
            message += "own"
        need = f"a passed run of suite {suite}"
        problems.append(Problem("fail", "canary", message, have=run.id, need=need))
    return problems or PASS


def evidence_for(context: RuleContext) -> list[str]:
    """Return the ids of the runs that the answer rests on, the deciding one of each suite first."""
    found: dict[str, None] = {}
    for one in context.evidence.values():
        if one.pool is not None:
            deciding = one.pool.failed[:1] or one.pool.runs[:1]
            found.update(dict.fromkeys(run.id for run in (*deciding, *one.pool.runs)))
    return list(found)


def _mention_refused_run(context: RuleContext, runs: Sequence[Evidence]) -> str:
    if not runs:
        return ""
    run, policy = runs[-1], context.policy.canary
    if run.development and not policy.accept_development:
        return f" ({run.id} ran outside a container, for development)"
    have = ASSURANCES[run.assurance]
    executor = run.bound.executor if run.bound else ""
    without = policy.assurance == "witnessed" and executor in _WITHOUT_PROCESSES
    never = f", which {executor} hosts cannot give" if without else ""
    return f" ({run.id} is {have}, and the policy requires {policy.assurance} runs{never})"


_WITHOUT_PROCESSES = ("slurm", "kubernetes")
"""Executors whose processes run on nodes that the worker does not see."""


def _format_moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _format_day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()
