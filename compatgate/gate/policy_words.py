"""A target's policy and match rules in words. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from compatgate.documents.specs import CanarySpec, MatchSpec, PolicySpec, WaiverPolicySpec

_MODES = {
    "enforce": "What fails is denied.",
    "warn": "Nothing is denied: what fails is let through with a warning.",
    "audit": "Nothing is denied: what fails is let through, and the answer says what it is.",
}
_UNKNOWN = {
    "fail": "What cannot be decided is stopped, as no decision.",
    "warn": "What cannot be decided is let through with a warning.",
    "allow": "What cannot be decided is let through.",
}


def policy_in_words(policy: PolicySpec) -> list[str]:
    """One sentence for each thing that a policy says."""
    words = [_MODES[policy.mode]]
    words.append(
        "A stack must be on the matrix: an entry has to match it."
        if policy.require_entry
        else "A stack need not be on the matrix; the vendors' facts decide."
    )
    if policy.entries == "strict":
        words.append("An entry blesses a stack only if it names every GPU package of it.")
    words += _canaries(policy.canary)
    if policy.packages == "audit":
        words.append("A package without a record is let through with a warning.")
    if policy.mode == "enforce":
        words.append(_UNKNOWN[policy.on_unknown])
    longest = (policy.waivers or WaiverPolicySpec()).max_duration
    return [*words, f"A new waiver lasts {longest} at most."]


def _canaries(canary: CanarySpec) -> Iterator[str]:
    suites = _listed(canary.suites)
    if canary.require:
        yield f"It must have passed {suites} on staging within the last {canary.max_age}."
    else:
        yield f"No canary run is asked for; a candidate is measured with {suites}."
    if canary.soak:
        yield f"Before an entry is blessed, {_listed(canary.soak)} must have passed as well."
    yield (
        "A candidate whose suites have all passed is blessed without asking."
        if canary.promote == "automatic"
        else "A person approves a candidate whose suites have all passed."
    )
    if canary.on_failure == "revoke":
        yield "A blessed entry that a later run contradicts is revoked."
    if canary.accept_development:
        yield "Runs outside a container count as evidence."


def match_in_words(match: MatchSpec) -> list[str]:
    """Say how hooks tell that a workload is bound for a target."""
    words = [
        "An object that names it in the annotation compatgate.dev/target, if namespace, node "
        "selector and request leave it."
    ]
    if match.namespaces or match.node_labels:
        said = [f"in a namespace like {' or '.join(match.namespaces)}"] if match.namespaces else []
        if match.node_labels:
            labels = ", ".join(f"{key}={value}" for key, value in match.node_labels.items())
            said.append(f"that asks for nodes with {labels}")
        words.append(f"Else an object {' and '.join(said)}.")
    return words


def _listed(names: tuple[str, ...]) -> str:
    return f"suite{'s' if len(names) > 1 else ''} {', '.join(names)}"
