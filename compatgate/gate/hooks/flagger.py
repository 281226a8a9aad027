"""Flagger's webhooks: which hook it is, what it asks, and which status moves it where.

Flagger sends ``name``, ``namespace``, ``phase``, ``checksum`` and the ``metadata`` of the Canary's
webhook, but not its type. It takes statuses up to 202 for yes and everything else for no; of a no
it writes the body into its events. Its client drops the body of a 5xx or 429, so none is sent.

Source: fluxcd/flagger ``pkg/controller/webhook.go``, ``scheduler_hooks.go`` and
``docs/gitbook/usage/webhooks.md``; hashicorp/go-retryablehttp ``DefaultRetryPolicy``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

from compatgate.errors import BadInput
from compatgate.gate.hooks.question import KEYS, question_of

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
YES, NO, OPEN = 200, 409, 424
_HINT = "say which hook it is in the webhook's metadata, type: confirm-rollout; Flagger does not"


def hook_type(payload: Mapping[str, Any], query: str | None) -> HookType:
    """Which hook asks, by the ``type`` of the metadata or of the URL's query.

    Raises:
        BadInput: neither says: a rollback hook taken for another would roll back what is good; or
            they disagree.
    """
    metadata = payload.get("metadata") or {}
    stated: Any = metadata.get("type") or query
    if stated is None:
        raise BadInput("the type of the hook is not stated", field="metadata.type", hint=_HINT)
    if stated not in TYPES:
        hint = f"one of {', '.join(TYPES)}"
        raise BadInput("is no type of hook", field="metadata.type", value=stated, hint=hint)
    if query not in (None, stated):
        hint = "state it once"
        raise BadInput(f"contradicts the query's {query!r}", field="metadata.type", hint=hint)
    found: HookType = stated
    return found


def question(payload: Mapping[str, Any]) -> dict[str, Any]:
    """The question in a payload that was checked: the keys of its metadata that are ours.

    Raises:
        BadInput: it names no target, or a malformed stack.
    """
    metadata = payload.get("metadata") or {}
    return question_of({key: metadata[key] for key in KEYS if key in metadata}, "metadata")


def check(payload: Mapping[str, Any]) -> None:
    """Make sure that a payload is Flagger's.

    Raises:
        BadInput: it is not.
    """
    for key in ("name", "namespace"):
        if not isinstance(payload.get(key), str) or not payload[key]:
            hint = "Flagger sends the name and namespace of the Canary"
            raise BadInput("is missing", field=key, value=payload.get(key), hint=hint)
    metadata = payload.get("metadata")
    if metadata is None:
        return
    if not isinstance(metadata, Mapping):
        raise BadInput("must be an object of text", field="metadata")
    for key, value in metadata.items():
        if not isinstance(value, str):
            raise BadInput("must be text", field=f"metadata.{key}", value=value)


def status(kind: HookType, decision: str) -> int:
    """The status that moves Flagger as the decision wants.

    A rollback hook is the other way round: yes rolls back, so only what is denied says yes. What is
    not known halts a rollout and rolls none back.
    """
    if kind == "rollback":
        return {"deny": YES, "allow": NO}.get(decision, OPEN)
    return {"allow": YES, "deny": NO}.get(decision, OPEN)


def said(kind: HookType, decision: str, lines: str) -> str:
    """The body: its first line is the reason, for the events of a Canary show it."""
    if kind != "rollback":
        return lines
    does = "rollback" if decision == "deny" else "no rollback"
    return f"{does}: {lines}"
