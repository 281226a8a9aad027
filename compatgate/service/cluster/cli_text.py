"""Print the results of ``k8s`` nodes, reconcile and audit: as text, kubectl commands or JSON.

It is imported only to print, because it needs the gate's modules.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from compatgate.kit.cli.output import print_json, print_table
from compatgate.kit.cli.terminal import printable
from compatgate.service.cluster.labels import commands, json_patch, summary, too_many

if TYPE_CHECKING:
    from compatgate.service.cluster.audit import Result
    from compatgate.service.cluster.labels import Cap, Plan
    from compatgate.service.cluster.policy_reports import WriteCounts


def print_plans(plans: Sequence[Plan], cap: Cap, form: str) -> int:
    """Print the planned changes, as kubectl commands or as JSON patches.

    Returns:
        The exit status: 1 if the taint limit is exceeded; no command is printed then.
    """
    refused = too_many(plans, cap)
    changing = [one for one in plans if one.changes]
    if form == "json":
        print_json({
            "refused": refused,
            "nodes": [] if refused else [_as_json(one) for one in changing],
        })  # fmt: skip
    elif not refused:
        for one in changing:
            print(f"# {printable(one.node.name)}: {printable(one.decided.why)}")
            for command in commands(one):
                print(command)
    print_summary(plans, refused)
    return 1 if refused else 0


def print_summary(plans: Sequence[Plan], refused: Sequence[str]) -> None:
    """Print counts, notes and refusals on standard error."""
    counts = ", ".join(f"{count} {state}" for state, count in summary(plans).items())
    changing = sum(one.changes for one in plans)
    print(f"{len(plans)} GPU nodes ({counts or 'none'}), {changing} to change", file=sys.stderr)
    for one in plans:
        for note in one.notes:
            print(printable(f"note: {one.node.name}: {note}"), file=sys.stderr)
    for why in refused:
        print(printable(f"error: {why}"), file=sys.stderr)
    if refused:
        hint = "check the entries and 'compatgate nodes list' first"
        print(f"nothing is changed, not even labels: {hint}", file=sys.stderr)


def _as_json(one: Plan) -> dict[str, Any]:
    return {
        "node": one.node.name,
        "driver": one.decided.driver,
        "driver_state": one.decided.state,
        "why": one.decided.why,
        "patch": json_patch(one),
    }


_HEAD = ("result", "namespace", "pod", "target", "rule", "why")
_NAMED = 10
_WRITTEN = ("made", "changed", "unchanged", "removed")
_TOLD = ("fail", "error", "warn", "skip")


def print_results(
    results: Sequence[Result],
    nodes: Sequence[dict[str, Any]] | None,
    written: WriteCounts | None,
    form: str,
) -> None:
    """Print every result that is not a pass, and the counts."""
    if form == "json":
        body: dict[str, Any] = {"results": [_result_json(result) for result in results]}
        body |= {"nodes": list(nodes)} if nodes is not None else {}
        body |= {"written": msgspec.to_builtins(written)} if written else {}
        print_json(body)
        return
    told = sorted((r for r in results if r.outcome in _TOLD), key=lambda r: _TOLD.index(r.outcome))
    rows = [
        (r.outcome, r.pod.namespace, r.pod.name, r.target, r.rule, printable(r.message))
        for r in told
    ]
    print_table(_HEAD, rows, empty="admission would admit every running GPU pod")
    counts = {name: sum(r.outcome == name for r in results) for name in ("pass", *_TOLD)}
    said = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    pods = len({(r.pod.namespace, r.pod.name) for r in results})
    print(f"{pods} GPU pods: {said or 'none'}", file=sys.stderr)
    if nodes is not None:
        states = [node["driver_state"] for node in nodes]
        named = ", ".join(f"{states.count(state)} {state}" for state in sorted(set(states)))
        print(f"{len(states)} GPU nodes: {named or 'none'}", file=sys.stderr)
    if written is not None:
        counts = {name: getattr(written, name) for name in _WRITTEN}
        made = ", ".join(f"{count} {name}" for name, count in counts.items())
        print(f"reports: {made}, {len(written.failed)} failed", file=sys.stderr)
        for why in written.failed[:_NAMED]:
            print(printable(f"error: {why}"), file=sys.stderr)


def _result_json(result: Result) -> dict[str, Any]:
    fields = ("outcome", "target", "rule", "message", "verdict", "mode", "image")
    return {
        "namespace": result.pod.namespace,
        "pod": result.pod.name,
        "node": result.pod.node,
        "containers": list(result.containers),
        **{name: getattr(result, name) for name in fields},
    }
