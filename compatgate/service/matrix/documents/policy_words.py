"""Describe policies of targets, and how workloads are matched to them, in sentences."""

from __future__ import annotations

from collections.abc import Iterator

from compatgate.documents.quantities import describe_seconds, parse_duration
from compatgate.documents.specs import CanarySpec, MatchSpec, PolicySpec, WaiverPolicySpec

_MODE_TEXTS = {
    "enforce": "Failing stacks are denied.",
    "warn": "Nothing is denied. Failing stacks are allowed with a warning.",
    "audit": "Nothing is denied. Failing stacks are allowed; the answer states the verdict.",
}
_UNKNOWN_TEXTS = {
    "fail": "Undecided stacks are stopped (no decision).",
    "warn": "Undecided stacks are allowed with a warning.",
    "allow": "Undecided stacks are allowed.",
}
_BIND_TEXTS = {
    "versions": "A run counts for every image with the versions that it measured.",
    "image": "A run counts only for the image that it tested, by its digest.",
}


def describe_policy(policy: PolicySpec) -> list[str]:
    """Return one sentence for each setting of a policy."""
    words = [_MODE_TEXTS[policy.mode]]
    words.append(
        "A stack must match an entry of the matrix."
        if policy.require_entry
        else "A stack need not match an entry; the vendors' facts decide."
    )
    if policy.entries == "strict":
        words.append(
            "An entry blesses a stack only if the entry names every GPU package of the stack."
        )
    words += _describe_canary(policy.canary)
    if policy.packages == "audit":
        words.append("A package without a record is allowed with a warning.")
    if policy.missing_facts == "audit":
        words.append("A stated value that the facts cannot judge is allowed with a warning.")
    if policy.stated_stacks == "ignore":
        words.append("Stacks stated by pods do not count; the gate reads their images.")
    if policy.mode == "enforce":
        words.append(_UNKNOWN_TEXTS[policy.on_unknown])
    longest = (policy.waivers or WaiverPolicySpec()).max_duration
    longest = describe_seconds(parse_duration(longest).total_seconds())
    words.append(f"A new waiver lasts at most {longest}.")
    people = policy.approvals or 1
    if people > 1:
        number = "two" if people == 2 else str(people)
        of = f", approved by {', '.join(policy.approvers)}" if policy.approvers else ""
        words.append(f"A change that lets the gate allow more needs {number} people{of}.")
    if policy.changes == "proposals":
        words.append("A change is a proposal first; permissions can be withdrawn at once.")
    return words


def _describe_canary(canary: CanarySpec) -> Iterator[str]:
    suites = _join_suites(canary.suites)
    if canary.require:
        yield f"A stack must have passed {suites} on staging within the last {canary.max_age}."
    else:
        yield f"No canary run is required. Candidates are measured with {suites}."
    if canary.soak:
        yield f"Before an entry is blessed, {_join_suites(canary.soak)} must also have passed."
    yield (
        "A candidate whose suites have all passed is blessed automatically."
        if canary.promote == "automatic"
        else "A person approves a candidate whose suites have all passed."
    )
    if canary.on_failure == "revoke":
        yield "If a later run contradicts a blessed entry, the entry is revoked."
    if canary.bind in _BIND_TEXTS:
        yield _BIND_TEXTS[canary.bind]
    if canary.accept_development:
        yield "Runs outside a container count as evidence."
    if canary.assurance != "self-reported":
        yield f"A passed run counts if it is at least {canary.assurance}."
    for suite, sources in canary.imported.items():
        yield f"Imported results of {', '.join(sources)} count for the suite {suite}."


def describe_match(match: MatchSpec) -> list[str]:
    """Return sentences on how hooks match workloads to a target."""
    words = [
        "An object that names the target in the annotation compatgate.dev/target, unless its "
        "namespace or node selection excludes the target."
    ]
    if match.namespaces or match.node_labels:
        said = [f"in a namespace like {' or '.join(match.namespaces)}"] if match.namespaces else []
        if match.node_labels:
            labels = ", ".join(f"{key}={value}" for key, value in match.node_labels.items())
            said.append(f"that requests nodes with {labels}")
        words.append(f"Otherwise an object {' and '.join(said)}.")
    return words


def _join_suites(names: tuple[str, ...]) -> str:
    return f"suite{'s' if len(names) > 1 else ''} {', '.join(names)}"
