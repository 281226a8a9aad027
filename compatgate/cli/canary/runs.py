"""Run ``compatgate canary`` run, list, show, logs, cancel, discard and rerun.

Waiting for runs shows a bar for each on a terminal, and a line for each change elsewhere.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from compatgate.cli.gate.opening import Operations, add_place, gate_of
from compatgate.errors import Unavailable
from compatgate.gate_client import ask, ask_all
from compatgate.kit.cli.options import add_format
from compatgate.kit.cli.output import format_json_time, print_json, print_table
from compatgate.kit.cli.parser import positive_count
from compatgate.kit.cli.terminal import strip_controls

if TYPE_CHECKING:
    import argparse

    from compatgate.client import Client

_START_EPILOG = """\
One run is queued for each SKU and driver of the target's pools. Without --stack and --image the
workloads run in their own images, and are measured there; this project's programs have no images.
exit status: 0 passed, 1 failed, 2 bad input, 3 inconclusive, error, timeout or cancelled
"""


_REQUEST = {
    "suite": ("S", "suite to run"),
    "target": ("T", "target of the run; optional with --host"),
    "pool": ("P", "only this pool of the target (default: each SKU and driver)"),
    "stack": ("LIST", "stack under test, for example cuda=12.4,torch=2.4.1+cu124"),
    "image": ("REF", "image under test"),
    "entry": ("NAME", "matrix entry under test"),
    "against": (
        "REFERENCE",
        "compare the image in pairs with an entry or an image; auto: with the blessed entry that it"
        " would replace (default for an image on a target); history: by baselines, in pairs only"
        " where they cannot tell; none: judge it alone",
    ),
    "explained": (
        "REASON",
        "why improbably good values are right: above the published peak, or better by more than"
        " 2 x; kept with the run and its baseline",
    ),
    "host": ("H", "staging host (default: any suitable host)"),
    "priority": ("N", "priority; higher runs first (default: 0)"),
}
"""Members of a request for runs: placeholder and help of the option of the same name."""


def add_start_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the action."""
    parser.epilog = _START_EPILOG
    more: dict[str, dict[str, Any]] = {
        "suite": {"required": True}, "priority": {"type": int, "default": 0},
    }  # fmt: skip
    for name, (metavar, text) in _REQUEST.items():
        parser.add_argument(f"--{name}", metavar=metavar, help=text, **more.get(name, {}))
    waiting = parser.add_mutually_exclusive_group()
    waiting.add_argument(
        "--wait", action="store_true", default=True, help="wait until the runs end (default)"
    )
    waiting.add_argument(
        "--detach", dest="wait", action="store_false", help="queue the run and exit with 0"
    )
    add_place(parser)
    add_format(parser)


def run_start(args: argparse.Namespace) -> int:
    """Queue the runs, and wait until they end."""
    with gate_of(args) as gate:
        made = ask(gate, Operations.submit_runs, **_start_body(args))["runs"]
        if args.wait:
            ids = [run["id"] for run in made]
            try:
                made = wait_for_runs(lambda run: ask(gate, Operations.show_run, run), ids)
            except KeyboardInterrupt:
                end = f"to cancel: compatgate canary cancel {' '.join(ids)}"
                print(f"\nnot ended yet; {describe_resuming(ids)}; {end}", file=sys.stderr)
                raise
    print_runs(made, args.format)
    return exit_status(made) if args.wait else 0


def _start_body(args: argparse.Namespace) -> dict[str, Any]:
    body = {name: value for name in _REQUEST if (value := getattr(args, name)) is not None}
    if args.stack is not None:
        from compatgate.core.stack import parse_stack_text

        body["stack"] = parse_stack_text(args.stack)
    return body


_STATES = (
    "active", "ended", "queued", "leased", "preparing", "running", "judging", "passed", "failed",
    "inconclusive", "error", "timeout", "cancelled",
)  # fmt: skip


def add_list_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the action."""
    parser.add_argument("--state", choices=_STATES, metavar="STATE", help=", ".join(_STATES))
    for name in ("target", "suite", "entry", "host"):
        parser.add_argument(f"--{name}", metavar=_REQUEST[name][0], help=name)
    purposes = ("request", "verification", "import")
    parser.add_argument("--purpose", choices=purposes, help="purpose")
    parser.add_argument(
        "--limit", type=positive_count, default=50, metavar="N", help="number of runs (default: 50)"
    )
    add_place(parser)
    add_format(parser)


def run_list(args: argparse.Namespace) -> int:
    """Print runs, newest first."""
    names = ("state", "target", "suite", "entry", "host", "purpose")
    with gate_of(args) as gate:
        filters = {name: getattr(args, name) for name in names}
        print_runs(ask_all(gate, args.limit, Operations.list_runs, **filters), args.format)
    return 0


def add_logs_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the action."""
    parser.add_argument("run", metavar="ID", help="run id, as in canary list")
    parser.add_argument(
        "-f", "--follow", action="store_true", help="follow the log until the run ends"
    )
    parser.add_argument("--step", metavar="NAME", help="only output of this step")
    add_place(parser)


def run_logs(args: argparse.Namespace) -> int:
    """Print a run's log."""
    with gate_of(args) as gate:
        whole = gate.show_logs(args.run, step=args.step)
        for text in _follow_logs(gate, args) if args.follow else whole:
            sys.stdout.write(strip_controls(text.replace("\t", "    ")))
            sys.stdout.flush()
    return 0


def _follow_logs(gate: Client, args: argparse.Namespace) -> Iterator[str]:
    from compatgate.service.runs.queue.logs import heading

    heading_key = None
    for event in gate.follow_run(args.run, step=args.step):
        name, data = event.name, event.data
        if name == "output":
            if args.step is None and (data["step"], data["attempt"]) != heading_key:
                heading_key = (data["step"], data["attempt"])
                yield heading(*heading_key)
            yield data["text"]
        elif name == "error":
            raise Unavailable(f"the log stopped: {data['detail']}")
        else:
            if name == "end":
                reason = f": {data['reason']}" if data["reason"] else ""
                print(f"[{data['state']}{reason}]", file=sys.stderr)


def add_cancel_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the action."""
    parser.add_argument("runs", nargs="+", metavar="ID", help="run ids, as in canary list")
    add_place(parser)
    add_format(parser)


def run_cancel(args: argparse.Namespace) -> int:
    """End runs: at once where they wait, else when their worker next reports."""
    with gate_of(args) as gate:
        print_runs([ask(gate, Operations.cancel_run, name) for name in args.runs], args.format)
    return 0


def add_discard_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the action."""
    parser.epilog = _DISCARD_EPILOG
    parser.add_argument("run", metavar="ID", help="run id, as in canary list")
    parser.add_argument(
        "--reason",
        required=True,
        metavar="TEXT",
        help="reason why the run does not count; kept in the audit log",
    )
    add_place(parser)
    add_format(parser)


_DISCARD_EPILOG = """\
A failed run denies its GPU content until it is older than the policy's maxAge, even if later runs
pass. Discard it only if the image is not the cause: a broken host, for example. A discarded run
cannot be restored. Needs the scope bless.

example: compatgate canary discard run_0123456789abcdef --reason "PSU of a100-3 failed"
"""


def run_discard(args: argparse.Namespace) -> int:
    """Discard a judged run: neither its pass nor its failure counts from now on."""
    with gate_of(args) as gate:
        result = ask(gate, Operations.discard_run, args.run, reason=args.reason)
        if args.format == "json":
            print_json(result)
        else:
            print(f"{result['id']} is discarded; {describe_pool(result['evidence'])}")
    return 0


def describe_pool(evidence: dict[str, Any]) -> str:
    """Return how many of the runs pooled with a run passed, in words."""
    pool = evidence["pool"]
    content = (evidence["content"] or "").removeprefix("sha256:")[:12]
    of = f"of GPU content {content}" if content else "of unknown GPU content"
    return f"{pool['passed']} of {pool['judged']} runs {of} passed"


def add_rerun_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the action."""
    parser.add_argument("run", metavar="ID", help="run id, as in canary list")
    add_place(parser)
    add_format(parser)


def run_rerun(args: argparse.Namespace) -> int:
    """Requeue a run, for the current state of its target."""
    with gate_of(args) as gate:
        print_runs(ask(gate, Operations.rerun, args.run)["runs"], args.format)
    return 0


_RUN_COLUMNS = ("run", "suite", "target", "gpu", "driver", "state", "host", "created", "reason")


def print_runs(runs: Sequence[dict[str, Any]], form: str) -> None:
    """Print runs as JSON, or one line per run."""
    if form == "json":
        print_json(list(runs))
        return
    print_table(_RUN_COLUMNS, [_run_row(run) for run in runs], empty="no runs")


def _run_row(run: dict[str, Any]) -> tuple[object, ...]:
    state = f"{run['state']} (cancelling)" if run["cancelling"] else run["state"]
    return (
        run["id"],
        run["suite"],
        run["target"],
        run["gpu"],
        run["driver"],
        state,
        run["on_host"] or run["host"],
        format_json_time(run["created_at"]),
        strip_controls(run["doing"] or run["reason"]),
    )


def stack_text(stack: dict[str, Any]) -> str:
    """Return a stack in one line, as ``--stack`` takes it."""
    return ",".join(
        f"{name}={'+'.join(value) if isinstance(value, list) else value}"
        for name, value in stack.items()
    )


Show = Callable[[str], dict[str, Any]]
"""A function that asks the gate for a run by its id."""
POLL_SECONDS = 1.0
_REPEAT_S = 30.0
_PATIENCE_S = 600.0
"""Time for which a gate may be away while a command waits for its runs."""
_EXITS = {"passed": 0, "failed": 1}
_EXIT_NO_VERDICT = 3
_OPEN_STATES = ("queued", "leased", "preparing", "running", "judging")


def exit_status(runs: Sequence[dict[str, Any]]) -> int:
    """Return 0: all passed; 1: one failed; 3: otherwise."""
    results = {_EXITS.get(run["state"], _EXIT_NO_VERDICT) for run in runs}
    return 1 if 1 in results else max(results, default=_EXIT_NO_VERDICT)


def describe_resuming(ids: Sequence[str]) -> str:
    """Return how to wait again for runs that go on without the command."""
    commands = " && ".join(f"compatgate canary show --wait {run}" for run in ids)
    return f"to go on waiting: {commands}"


def wait_for_runs(show: Show, ids: Sequence[str]) -> list[dict[str, Any]]:
    """Wait until all runs have ended, also while the gate restarts; print progress on stderr."""
    patient = partial(_show_patiently, show, ids)
    if sys.stderr.isatty():
        return _with_bars(patient, ids)
    lines: dict[str, tuple[str, float]] = {}

    def say(run: dict[str, Any]) -> None:
        text, now = run_line(run), time.monotonic()
        before, at = lines.get(run["id"], ("", 0.0))
        # A new share or time left is no new activity: a log gets it now and then.
        again = before.partition(", ")[0] == text.partition(", ")[0] and now - at < _REPEAT_S
        if text != before and not again:
            lines[run["id"]] = text, now
            print(text, file=sys.stderr, flush=True)

    return _until_ended(patient, ids, say)


def _show_patiently(show: Show, ids: Sequence[str], name: str) -> dict[str, Any]:
    """Show a run, and wait while the gate restarts."""
    began = 0.0
    while True:
        try:
            return show(name)
        except Unavailable as error:
            resume = f"the runs go on; {describe_resuming(ids)}"
            if not began:
                began = time.monotonic()
                print(f"{error.problem}: waiting for the gate; {resume}", file=sys.stderr)
            elif time.monotonic() - began > _PATIENCE_S:
                error.hint = resume
                raise
        time.sleep(POLL_SECONDS)


def run_line(run: dict[str, Any]) -> str:
    """Return a run's state in one line."""
    where = f" on {run['on_host']}" if run["on_host"] else ""
    parts = [text for text in (run["doing"], run["reason"]) if text]
    more = f": {', '.join(parts)}" if parts else ""
    return " ".join(strip_controls(f"{run['id']} {run['state']}{where}{more}").split())


def _until_ended(
    show: Show, ids: Sequence[str], say: Callable[[dict[str, Any]], None]
) -> list[dict[str, Any]]:
    runs: dict[str, dict[str, Any]] = {}
    while True:
        for name in ids:
            if name not in runs or runs[name]["state"] in _OPEN_STATES:
                runs[name] = show(name)
                say(runs[name])
        if not any(run["state"] in _OPEN_STATES for run in runs.values()):
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
            share, has_ended = run["progress"], run["state"] not in _OPEN_STATES
            progress.update(
                tasks[run["id"]],
                total=None if share is None and not has_ended else 1.0,
                completed=1.0 if has_ended else share or 0.0,
                state=run["state"],
                doing=run_line(run).partition(": ")[2],
            )

        return _until_ended(show, ids, say)
