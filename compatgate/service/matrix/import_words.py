"""Write the result of an import, and what a dry run foresees, as lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from compatgate.kit.cli.terminal import strip_controls

Body = dict[str, Any]
_MAX_NEEDS = 20
_MAX_EXAMPLES = 5


def describe_result(result: Body) -> str:
    """Return what an import or a dry run did, in one line."""
    changes, unchanged = result["changes"], result["unchanged"]
    if result["revision"] is not None:
        return f"revision {result['revision']}: {len(changes)} changed, {unchanged} unchanged"
    if changes:
        return f"dry run: {len(changes)} would change, {unchanged} would not"
    return f"nothing to change: all {unchanged} documents are up to date"


def describe_preview(result: Body) -> Iterator[str]:
    """Yield what a dry run foresees: missing canary runs, and what waivers let through."""
    preview = result.get("preview") or {}
    needs = preview.get("needs", ())
    for need in needs[:_MAX_NEEDS]:
        state = f"run {need['failed']} failed" if need["failed"] else "has not passed"
        asked = "a policy requires it" if need["required"] else "not required"
        yield strip_controls(
            f"evidence: suite {need['suite']} for {need['entry']} on {need['target']},"
            f" {need['sku']}, driver {need['driver']}: {state} ({asked})"
        )
    if len(needs) > _MAX_NEEDS:
        yield f"evidence: and {len(needs) - _MAX_NEEDS} more runs"
    if any(need["required"] for need in needs):
        yield "evidence: without these runs, state spec.evidenceOverride, or the change is refused"
    for waiver in preview.get("waivers", ()):
        yield from _describe_scope(waiver)
    for remark in preview.get("remarks", ()):
        yield f"note: {remark}"


def _describe_scope(waiver: Body) -> Iterator[str]:
    counts = ", ".join(
        f"{waiver[name]} {name.removesuffix('s') if waiver[name] == 1 else name}"
        for name in ("stacks", "decisions", "nodes")
    )
    yield strip_controls(
        f"waiver {waiver['name']} lets through, of the last {waiver['days']} days: {counts}"
    )
    for one in waiver["examples"][:_MAX_EXAMPLES]:
        versions = (f"{k}={v}" for k, v in one["stack"].items() if isinstance(v, str))
        what = one["image"] or " ".join(versions)
        asked_by = ", ".join(one["asked_by"]) or "nobody"
        yield strip_controls(
            f"    {what} on {one['target']}: {one['decisions']} decisions, asked by {asked_by}"
        )
    if waiver["stacks"] > _MAX_EXAMPLES:
        yield f"    and {waiver['stacks'] - _MAX_EXAMPLES} more stacks"
    for remark in waiver["remarks"]:
        yield f"note: {remark}"
