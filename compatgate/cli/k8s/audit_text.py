"""What an audit found, for people and for programs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from compatgate.cli.database import print_json, print_table
from compatgate.cli.terminal import printable

if TYPE_CHECKING:
    from compatgate.gate.cluster.audit import Result
    from compatgate.gate.cluster.report_writer import Written

_HEAD = ("result", "namespace", "pod", "target", "rule", "why")
_NAMED = 10
_WRITTEN = ("made", "changed", "unchanged", "removed")
_TOLD = ("fail", "error", "warn", "skip")


def print_results(
    results: Sequence[Result],
    nodes: Sequence[dict[str, Any]] | None,
    written: Written | None,
    form: str,
) -> None:
    """Everything that is not a pass, and the sums."""
    if form == "json":
        body: dict[str, Any] = {"results": [_plain(result) for result in results]}
        body |= {"nodes": list(nodes)} if nodes is not None else {}
        body |= {"written": msgspec.to_builtins(written)} if written else {}
        print_json(body)
        return
    told = sorted((r for r in results if r.outcome in _TOLD), key=lambda r: _TOLD.index(r.outcome))
    rows = [
        (r.outcome, r.pod.namespace, r.pod.name, r.target, r.rule, printable(r.message))
        for r in told
    ]
    print_table(_HEAD, rows, empty="everything that runs would be admitted")
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


def _plain(result: Result) -> dict[str, Any]:
    fields = ("outcome", "target", "rule", "message", "verdict", "mode", "image")
    return {
        "namespace": result.pod.namespace,
        "pod": result.pod.name,
        "node": result.pod.node,
        "containers": list(result.containers),
        **{name: getattr(result, name) for name in fields},
    }
