"""Waiting for runs: a bar each on a terminal, a line for each change elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

Show = Callable[[str], dict[str, Any]]
"""Asks the gate for a run, by its id."""
POLL_SECONDS = 1.0
_EXITS = {"passed": 0, "failed": 1}
_OTHERWISE = 3
_OPEN = ("queued", "leased", "preparing", "running", "judging")


def exit_status(runs: Sequence[dict[str, Any]]) -> int:
    """0: all passed; 1: one failed; 3: otherwise."""
    found = {_EXITS.get(run["state"], _OTHERWISE) for run in runs}
    return 1 if 1 in found else max(found, default=_OTHERWISE)


def wait(show: Show, ids: Sequence[str]) -> list[dict[str, Any]]:
    """The runs once all of them have ended; what happens meanwhile goes to standard error."""
    if sys.stderr.isatty():
        return _with_bars(show, ids)
    said: dict[str, str] = {}

    def say(run: dict[str, Any]) -> None:
        text = line(run)
        if said.get(run["id"]) != text:
            said[run["id"]] = text
            print(text, file=sys.stderr, flush=True)

    return _until_ended(show, ids, say)


def line(run: dict[str, Any]) -> str:
    """A run's state in one line."""
    from compatgate.cli.terminal import printable

    where = f" on {run['on_host']}" if run["on_host"] else ""
    parts = [text for text in (run["doing"], run["reason"]) if text]
    more = f": {', '.join(parts)}" if parts else ""
    return " ".join(printable(f"{run['id']} {run['state']}{where}{more}").split())


def _until_ended(
    show: Show, ids: Sequence[str], say: Callable[[dict[str, Any]], None]
) -> list[dict[str, Any]]:
    runs: dict[str, dict[str, Any]] = {}
    while True:
        for name in ids:
            if name not in runs or runs[name]["state"] in _OPEN:
                runs[name] = show(name)
                say(runs[name])
        if not any(run["state"] in _OPEN for run in runs.values()):
            return list(runs.values())
        time.sleep(POLL_SECONDS)


def _with_bars(show: Show, ids: Sequence[str]) -> list[dict[str, Any]]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.fields[run]}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[doing]}", markup=False),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        tasks = {
            name: progress.add_task("", total=None, run=name, state="", doing="") for name in ids
        }

        def say(run: dict[str, Any]) -> None:
            share, has_ended = run["progress"], run["state"] not in _OPEN
            progress.update(
                tasks[run["id"]],
                total=None if share is None and not has_ended else 1.0,
                completed=1.0 if has_ended else share or 0.0,
                state=run["state"],
                doing=line(run).partition(": ")[2],
            )

        return _until_ended(show, ids, say)
