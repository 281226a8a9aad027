"""Turn a deploy tool's request into a question, and a verdict into its answer form.

Flagger sends ``name``, ``namespace``, ``phase``, ``checksum`` and the ``metadata`` of the
Canary's webhook, but not its type. It takes statuses up to 202 for yes and everything else for
no; of a no it writes the body into its events. Its client drops the body of a 5xx or 429, so
none is sent.

Source: fluxcd/flagger ``pkg/controller/webhook.go``, ``scheduler_hooks.go`` and
``docs/gitbook/usage/webhooks.md``; hashicorp/go-retryablehttp ``DefaultRetryPolicy``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

from compatgate.core.compare.differences import Subject
from compatgate.core.compare.what_if import WhatIf
from compatgate.core.rule import REFUSING
from compatgate.core.stack import parse_stack_text
from compatgate.core.versions import parse_version
from compatgate.documents.sources import suggest_name
from compatgate.errors import BadInput
from compatgate.kit.kubernetes import read_mapping, read_text, to_one_line
from compatgate.service.cluster.matching import TARGET

KEYS = ("target", "pool", "stack", "image", "set")
_TEXT_KEYS = ("pool", "stack", "set")
"""May be written as text, ``cuda=12.4,torch=2.4.1``: many tools carry nothing else."""
Decision = Literal["allow", "deny", "unknown", "error"]
"""``unknown``: no decision could be had, ask again; ``error``: the question is wrong."""
ALLOWED, DENIED, OPEN = 200, 409, 424
LONGEST = 1500
"""Characters of a reason."""
HookType = Literal[
    "confirm-rollout",
    "pre-rollout",
    "rollout",
    "confirm-traffic-increase",
    "confirm-promotion",
    "post-rollout",
    "rollback",
    "event",
]
TYPES: tuple[str, ...] = get_args(HookType)
_HINT = "name the hook in the webhook's metadata, type: confirm-rollout; Flagger does not"
_KEYS = ("driver", "target", "pool", "node")
_EXPLAINED = 3


def question_of(fields: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """Return the question, as ``POST /gate`` takes it; the gate itself validates what is in it.

    Empty text is left out, so that a template may leave a variable empty. Errors say ``where`` the
    fields are: ``metadata``.
    """
    body: dict[str, Any] = {}
    for key, value in fields.items():
        path = f"{where}.{key}" if where else key
        if key not in KEYS:
            raise BadInput("unknown key", field=path, hint=suggest_name(key, KEYS))
        if value is None or value == "":
            continue
        body[key] = value
        if key in _TEXT_KEYS and isinstance(value, str):
            try:
                body[key] = parse_stack_text(value)
            except BadInput as error:
                raise error.at(path) from None
    if not ("target" in body or "pool" in body):
        path = f"{where}.target" if where else "target"
        raise BadInput("names no target", field=path, hint="add the name of a target")
    return body


def decision_of(verdict: Mapping[str, Any]) -> Decision:
    """Return the decision about a deployment."""
    if verdict["allowed"]:
        return "allow"
    return "unknown" if verdict["verdict"] == "unknown" else "deny"


def status_of(decision: str) -> int:
    """Return the status of an answer."""
    return {"allow": ALLOWED, "deny": DENIED}.get(decision, OPEN)


def reason_of(verdict: Mapping[str, Any], link: str) -> str:
    """Return reason, fix and link in one field."""
    return "; ".join(_reasons(verdict, link, "also "))


def reason_lines(verdict: Mapping[str, Any], link: str) -> str:
    """Return reason, fix and link as lines, the reason first."""
    return "\n".join(_reasons(verdict, link, "also: ")) + "\n"


def _reasons(verdict: Mapping[str, Any], link: str, also: str) -> list[str]:
    findings = [f for f in verdict["findings"] if f["outcome"] in ("fail", "unknown", "warn")]
    reasons, cause = [], "every rule holds"
    if findings:
        first = findings[0]  # a verdict lists the worst first
        cause = f"{first['rule']} {first['message']}"
        if first["fixes"]:
            reasons.append(f"fix: {to_one_line(first['fixes'][0]['message'], LONGEST)}")
        others = {f["rule"] for f in findings if f["outcome"] == first["outcome"]}
        if more := ", ".join(sorted(others - {first["rule"]})):
            reasons.append(f"{also}{more}")
    if unread := verdict["stack"].get("unread"):
        reasons.append(to_one_line(str(unread[0]), LONGEST))
    if verdict.get("degraded"):
        reasons.append("degraded: decided on the last good snapshot")
    reasons += [link] if link else []
    return [to_one_line(f"{_answer(verdict)}: {cause}", LONGEST), *reasons]


def _answer(verdict: Mapping[str, Any]) -> str:
    outcome = verdict["verdict"]
    if not verdict["allowed"]:
        return "no decision" if outcome == "unknown" else "denied"
    if outcome in REFUSING:
        what = "it fails" if outcome == "fail" else "it is unknown whether it works"
        setting = "onUnknown of the policy"  # mode enforce denies what fails
        by = setting if verdict["mode"] == "enforce" else f"mode '{verdict['mode']}'"
        return f"allowed by {by}, although {what}"
    return "allowed, with warnings" if outcome == "warn" else "allowed"


def check_flagger(payload: Mapping[str, Any]) -> Mapping[str, str]:
    """Check that a payload is Flagger's, and return its metadata."""
    for key in ("name", "namespace"):
        if not isinstance(payload.get(key), str) or not payload[key]:
            hint = "Flagger sends the name and namespace of the Canary"
            raise BadInput("is missing", field=key, value=payload.get(key), hint=hint)
    metadata = payload.get("metadata")
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping):
        raise BadInput("must be an object with text values", field="metadata")
    for key, value in metadata.items():
        if not isinstance(value, str):
            raise BadInput("must be text", field=f"metadata.{key}", value=value)
    return metadata


def hook_type(metadata: Mapping[str, str], query: str | None) -> HookType:
    """Return the type of the hook, from the ``type`` of the metadata or of the URL's query."""
    stated: Any = metadata.get("type") or query
    if stated is None:
        raise BadInput("the type of the hook is missing", field="metadata.type", hint=_HINT)
    if stated not in TYPES:
        hint = f"one of {', '.join(TYPES)}"
        raise BadInput("is not a type of hook", field="metadata.type", value=stated, hint=hint)
    if query not in (None, stated):
        hint = "state it once"
        raise BadInput(f"contradicts the query's {query!r}", field="metadata.type", hint=hint)
    found: HookType = stated
    return found


def answer_flagger(kind: HookType, verdict: Mapping[str, Any], link: str) -> tuple[str, int]:
    """Return text and status of an answer; events of a Canary show the first line.

    A rollback hook is the other way round: yes rolls back, so only what is denied says yes. What is
    not known halts a rollout and rolls none back.
    """
    decision, lines = decision_of(verdict), reason_lines(verdict, link)
    if kind != "rollback":
        return lines, status_of(decision)
    does = "rollback" if decision == "deny" else "no rollback"
    return f"{does}: {lines}", {"deny": ALLOWED, "allow": DENIED}.get(decision, OPEN)


def rollout_question(body: Mapping[str, Any], query: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of ``POST /what-if``; the query has what the body does not say.

    The body is ``{"target": ..., "driver": ...}``, or a Kubernetes Node as it is.
    """
    stated: dict[str, Any] = dict(query)
    if body.get("kind") == "Node":
        metadata = read_mapping(body.get("metadata"))
        stated["node"] = {"labels": metadata.get("labels"), "name": metadata.get("name")}
        named = read_text(read_mapping(metadata.get("annotations")).get(TARGET)).strip()
        if named and not stated.get("target"):
            stated["target"] = named
    else:
        for key, value in body.items():
            if key not in _KEYS:
                raise BadInput("unknown key", field=key, hint=suggest_name(key, _KEYS))
            stated[key] = value
    driver = stated.pop("driver", None)
    if not isinstance(driver, str) or not driver:
        hint = "add the version to roll out, like 580.95.05"
        raise BadInput("names no driver", field="driver", value=driver, hint=hint)
    try:  # a branch would be judged by its newest release, and another might be rolled out
        parse_version("driver", driver)
    except BadInput as error:
        raise error.at("set") from None
    return {**stated, "set": {"driver": driver}}


def rollout_answer(found: WhatIf) -> dict[str, Any]:
    """Return the effect of a change as a flat object; the reason names entry, rule and fix."""
    broken = found.of("breaks")
    unsettled = tuple(entry for entry in found.entries if entry.is_open)
    reasons = map(_rollout_reason, (broken or unsettled)[:_EXPLAINED])
    shown = {"allowed": found.allowed, "verdict": found.verdict}
    return {
        "decision": decision_of(shown),
        "allowed": found.allowed,
        "reason": to_one_line(
            "; ".join(filter(None, (found.summary, *reasons, *found.remarks))), LONGEST
        ),
        "target": found.target,
        "mode": found.mode,
        "verdict": found.verdict,
        "breaks": [entry.name for entry in broken],
        "unknown": [entry.name for entry in unsettled],
    }


def _rollout_reason(entry: Subject) -> str:
    if entry.open:
        return f"{entry.name}: {entry.open[0]}"
    lost = [finding for pool in entry.pools for finding in pool.lost]
    if not lost:
        return ""
    fixes = lost[0].fixes
    mend = f" (fix: {fixes[0].message})" if fixes else ""
    return f"{entry.name}: {lost[0].rule} {lost[0].message}{mend}"
