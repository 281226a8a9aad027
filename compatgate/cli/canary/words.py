"""Runs for people: tables and lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compatgate.cli.database import print_json, print_table, second
from compatgate.cli.terminal import printable

_HEAD = ("run", "suite", "target", "gpu", "driver", "state", "host", "created", "reason")


def print_runs(runs: Sequence[dict[str, Any]], form: str) -> None:
    """Runs as JSON, or a line each."""
    if form == "json":
        print_json(list(runs))
        return
    print_table(_HEAD, [_row(run) for run in runs], empty="no runs")


def _row(run: dict[str, Any]) -> tuple[object, ...]:
    state = f"{run['state']} (cancelling)" if run["cancelling"] else run["state"]
    return (
        run["id"],
        run["suite"],
        run["target"],
        run["gpu"],
        run["driver"],
        state,
        run["on_host"] or run["host"],
        second(run["created_at"]),
        printable(run["reason"] or run["doing"]),
    )


def components(stack: dict[str, Any]) -> str:
    """A stack in one line, as ``--stack`` takes it."""
    return ",".join(
        f"{name}={'+'.join(value) if isinstance(value, list) else value}"
        for name, value in stack.items()
    )
