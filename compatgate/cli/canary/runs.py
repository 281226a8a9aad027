"""Run ``compatgate canary`` run, list, show, logs, cancel, discard and rerun.

Waiting for runs prints a line for each change.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence

import msgspec

from compatgate.canary.run import Conditions
from compatgate.cli.commands import Body, Row, columns, format_rows
from compatgate.cli.gate import Client, Operations, asking, gate_of
from compatgate.core.binding import Comparison
from compatgate.errors import Unavailable
from compatgate.gate_client import ask
from compatgate.kit.cli.output import format_fields, format_json_time, say, strip_controls

POLL_SECONDS = 1.0
_REPEAT_S = 30.0
_PATIENCE_S = 600.0
"""Time for which a gate may be away while a command waits for its runs."""
_OPEN_STATES = ("queued", "leased", "preparing", "running", "judging")
_ENDED_STATES = ("passed", "failed", "inconclusive", "error", "timeout", "cancelled")
_STATES = ("active", "ended", *_OPEN_STATES, *_ENDED_STATES)
_COLUMNS = columns(
    *("run: id", "suite", "target", "gpu", "driver"),
    ("state", lambda run: f"{run['state']}{' (cancelling)' if run['cancelling'] else ''}"),
    *(("host", lambda run: run["on_host"] or run["host"]), "created: created_at"),
    ("reason", lambda run: run["doing"] or run["reason"]),
)


def _start(args: argparse.Namespace) -> list[Body]:
    with gate_of(args) as gate:
        made: list[Body] = START.ask(args, gate)
        ids = [run["id"] for run in made]
        try:
            if not args.detach:
                made = wait_for_runs(lambda run: ask(gate, Operations.show_run, run), ids)
        except KeyboardInterrupt:
            end = f"to cancel: compatgate canary cancel {' '.join(ids)}"
            say(f"\nnot ended yet; {describe_resuming(ids)}; {end}")
            raise
    return made


def exit_status(runs: Sequence[Body]) -> int:
    """Return 0: all passed; 1: one failed; 3: otherwise."""
    states = {run["state"] for run in runs}
    return 1 if "failed" in states else 0 if states == {"passed"} else 3


START = Row(
    "submit_runs",
    """\
--suite S     suite to run
--target T    target of the run; optional with --host
--stack LIST  stack under test, for example cuda=12.4,torch=2.4.1+cu124
--wait        wait until the runs end (default)
| --detach    queue the run and exit with 0
...
""",
    _COLUMNS,
    member="runs",
    answer=_start,
    status=lambda made, args: 0 if args.detach else exit_status(made),
    summary="run a suite for a target's stack",
    epilog="""\
One run is queued for each SKU and driver of the target's pools. Without --stack and --image the
workloads run in their own images, and are measured there; this project's programs have no images.
exit status: 0 passed, 1 failed, 2 bad input, 3 inconclusive, error, timeout or cancelled
""",
)
CANCEL = Row("cancel_run", "id: ID ...", _COLUMNS, summary="cancel runs")
RERUN = Row("rerun", columns=_COLUMNS, member="runs")


@asking(
    "print the logs of a run",
    """\
run: ID       run id, as in canary list
-f, --follow  follow the log until the run ends
--step NAME   only output of this step
""",
    form="",
)
def run_logs(args: argparse.Namespace, gate: Client) -> int:
    """Print a run's log."""
    whole = gate.show_logs(args.run, step=args.step)
    for text in _follow_logs(gate, args) if args.follow else whole:
        sys.stdout.write(strip_controls(text.replace("\t", "    ")))
        sys.stdout.flush()
    return 0


def _follow_logs(gate: Client, args: argparse.Namespace) -> Iterator[str]:
    from compatgate.service.runs.queue.logs import heading

    shown = None
    for event in gate.follow_run(args.run, step=args.step):
        name, data = event.name, event.data
        if name == "output":
            if args.step is None and (data["step"], data["attempt"]) != shown:
                shown = (data["step"], data["attempt"])
                yield heading(*shown)
            yield data["text"]
        elif name == "error":
            raise Unavailable(f"the log stopped: {data['detail']}")
        elif name == "end":
            reason = f": {data['reason']}" if data["reason"] else ""
            say(f"[{data['state']}{reason}]")


def describe_pool(evidence: Body) -> str:
    """Return how many of the runs pooled with a run passed, in words."""
    pool = evidence["pool"]
    content = (evidence["content"] or "").removeprefix("sha256:")[:12]
    of = f"of GPU content {content}" if content else "of unknown GPU content"
    return f"{pool['passed']} of {pool['judged']} runs {of} passed"


def describe_resuming(ids: Sequence[str]) -> str:
    """Return how to wait again for runs that go on without the command."""
    commands = " && ".join(f"compatgate canary show --wait {run}" for run in ids)
    return f"to go on waiting: {commands}"


def wait_for_runs(show: Callable[[str], Body], ids: Sequence[str]) -> list[Body]:
    """Wait until all runs have ended, also while the gate restarts; print progress on stderr."""
    runs: dict[str, Body] = {}
    lines: dict[str, tuple[str, float]] = {}

    def tell(run: Body) -> None:
        text, now = run_line(run), time.monotonic()
        before, at = lines.get(run["id"], ("", 0.0))
        # A new share or time left is no new activity: a log gets it now and then.
        again = before.partition(", ")[0] == text.partition(", ")[0] and now - at < _REPEAT_S
        if text != before and not again:
            lines[run["id"]] = text, now
            say(text)

    while True:
        for name in ids:
            if name not in runs or runs[name]["state"] in _OPEN_STATES:
                runs[name] = _show_patiently(show, ids, name)
                tell(runs[name])
        if not any(run["state"] in _OPEN_STATES for run in runs.values()):
            return list(runs.values())
        time.sleep(POLL_SECONDS)


def _show_patiently(show: Callable[[str], Body], ids: Sequence[str], name: str) -> Body:
    began = 0.0
    while True:
        try:
            return show(name)
        except Unavailable as error:
            resume = f"the runs go on; {describe_resuming(ids)}"
            if not began:
                began = time.monotonic()
                say(f"{error.problem}: waiting for the gate; {resume}")
            elif time.monotonic() - began > _PATIENCE_S:
                error.hint = resume
                raise
        time.sleep(POLL_SECONDS)


def run_line(run: Body) -> str:
    """Return a run's state in one line."""
    where = f" on {run['on_host']}" if run["on_host"] else ""
    parts = [text for text in (run["doing"], run["reason"]) if text]
    more = f": {', '.join(parts)}" if parts else ""
    return " ".join(strip_controls(f"{run['id']} {run['state']}{where}{more}").split())


LIST = Row(
    "list_runs",
    f"""\
--state STATE   {", ".join(_STATES)}
--target T
--suite S
--entry NAME
--host H
--purpose {{}}
--limit N = 50  number of runs
""",
    _COLUMNS,
    settings={"state": {"choices": _STATES}},
    limited=False,
)
DISCARD = Row(
    "discard_run",
    "ID\n--reason TEXT  reason why the run does not count; kept in the audit log",
    text=lambda run: f"{run['id']} is discarded; {describe_pool(run['evidence'])}",
    epilog="""\
A failed run denies its GPU content until it is older than the policy's maxAge, even if later runs
pass. Discard it only if the image is not the cause: a broken host, for example. A discarded run
cannot be restored. Needs the scope bless.

example: compatgate canary discard run_0123456789abcdef --reason "PSU of a100-3 failed"
""",
)


def _show(args: argparse.Namespace) -> Body:
    with gate_of(args) as gate:
        if args.wait:
            wait_for_runs(lambda run: ask(gate, Operations.show_run, run), [args.id])
        return dict(SHOW.ask(args, gate))


def _format_run(run: Body) -> str:
    """Return a run with everything that is known of it; an older server sends less."""
    host, reference = run["on_host"] or run["host"], ""
    if against := run.get("against"):
        reason = against["reason"]
        entry = f"entry {against['entry']}: " if against["entry"] else ""
        reference = f"{entry}{against['image']}{f' ({reason})' if reason else ''}"
        reference = reference if against["image"] else f"nothing: {reason}"
    fields = {
        "suite": run["suite"],
        "target": " / ".join(filter(None, (run["target"], run["pool"]))),
        "entry": run["entry"],
        "stack": ",".join(
            f"{name}={'+'.join(value) if isinstance(value, list) else value}"
            for name, value in run["stack"].items()
        ),
        "image": run["image"],
        "against": reference,
        "gpu": run["gpu"],
        "driver": run["driver"],
        "nodes": run["nodes"] if run["nodes"] > 1 else None,
        "host": f"{host} ({run['worker']})" if host and run["worker"] else host,
        "attempt": f"{run['attempts']} of {run['max_attempts']}" if run["attempts"] else None,
        "asked for": f"{format_json_time(run['created_at'])} by {run['asked_by']}",
        "started": format_json_time(run["started_at"]),
        "finished": format_json_time(run["finished_at"]),
    }
    steps = run["steps"]
    parts = [f"{run_line(run)}\n{format_fields(fields, '  ')}"]
    if steps:
        named = columns("step: name", "outcome", "exit: exit_code", "reason")
        parts.append(format_rows(steps, named))
    if pairs := run.get("pairs"):
        metrics = (pairs["judgement"] or {}).get("metrics")
        state = f"pairs: {pairs['outcome'] or 'undecided'} after {pairs['done']}"
        lines = [state, f"  {pairs['reason']}"]
        parts.append("\n".join([*lines, format_rows(metrics, _PAIRS)] if metrics else lines))
    parts += map("\n".join, (_list_witnesses(steps), _list_figures(steps)))
    if evidence := run.get("evidence"):
        parts.append(_format_evidence(evidence))
    return strip_controls("\n\n".join(filter(None, parts)))


def _share(value: float | None) -> str:
    return "" if value is None else f"{100 * value:+.3g} %"


def _interval(metric: Body) -> str:
    low, high = (_share(metric[end]) or "open" for end in ("low", "high"))
    return "" if metric["effect"] is None else f"{low} to {high}"


_PAIRS = columns(
    *("metric", "outcome", ("change", lambda metric: _share(metric["effect"]))),
    *(("interval", _interval), ("tolerance", lambda metric: _share(metric["tolerance"])[1:])),
)


def _list_witnesses(steps: Sequence[Body]) -> Iterator[str]:
    for step in steps:
        if not (witness := (step["report"] or {}).get("witness")):
            continue
        by = f"by the {witness['interpreter']}'s interpreter"
        yield f"  {step['name']} is {witness['assurance']}, {by}"
        if witness["not_witnessed"]:
            unseen = "; ".join(f"{what}: {why}" for what, why in witness["not_witnessed"].items())
            yield f"    not witnessed: {unseen}"
        yield from (f"    contradicted: {line}" for line in witness["contradictions"])


def _list_figures(steps: Sequence[Body]) -> Iterator[str]:
    for step in steps:
        for one in step.get("peaks", ()):
            yield f"  {step['name']} {one['metric']}: {one['words']}"
            yield f"    source: {one['source']['title']}, {one['source']['confidence']}"
    for step in steps:
        for metric in (step["report"] or {}).get("metrics", ()):
            result = msgspec.convert(metric.get("conditions"), Conditions | None)
            if result and result.words:
                yield f"  {step['name']} {metric['name']}: {result.words}"


def _format_evidence(found: Body) -> str:
    bound, gone = found["bound"] or {}, found["discarded"]
    compared = msgspec.convert(bound.get("compared"), Comparison | None)
    fields = {
        "evidence": f"{found['outcome']} on {found['sku']}, driver {found['driver']}",
        "pool": describe_pool(found),
        "content": bound.get("content") or bound.get("content_why"),
        "image": bound.get("image"),
        "gpus": ", ".join(bound.get("gpus", ())),
        "reference": compared and compared.reference,
        "change": compared and compared.words,
        "discarded": f"by {gone['by']}: {gone['reason']}" if gone else None,
        "not valid": found.get("changed"),
    }
    return format_fields(fields, "  ")


SHOW = Row(
    "show_run",
    "ID\n--wait  wait until the run ends",
    text=_format_run,
    answer=_show,
    status=lambda run, args: exit_status([run]) if args.wait else 0,
    summary="show a run and its steps",
    epilog="""\
exit status: 0; with --wait as canary run: 0 passed, 1 failed, 3 inconclusive, error or cancelled
""",
)
