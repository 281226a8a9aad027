"""Run ``compatgate health``: find GPU and NVSwitch errors in a kernel log, and report them."""

from __future__ import annotations

import argparse
import socket
import sys
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from compatgate.catalog import load_facts
from compatgate.cli.gate import gate_of
from compatgate.core.versions import Version, parse_version
from compatgate.discovery.driver import read_kernel_driver
from compatgate.documents.quantities import parse_duration
from compatgate.errors import BadInput, Unavailable, naming
from compatgate.gate_client import ask
from compatgate.kit import clock
from compatgate.kit.cli.options import FORMAT, PLACE, read_interval, repeat
from compatgate.kit.cli.output import (
    name_input,
    open_input,
    paint,
    print_answer,
    say,
    strip_controls,
    wants_colour,
    width_of,
    wrap_beside,
)
from compatgate.kit.cli.usage import command
from compatgate.kit.clock import iso
from compatgate.service.nodes.schemas import MAX_XIDS

if TYPE_CHECKING:
    from compatgate.canary.health import Health
    from compatgate.canary.health.events import KernelErrors
    from compatgate.canary.health.records import Record
    from compatgate.canary.health.snapshot import SmiAnswer

EXIT_FATAL = 1
EXIT_UNSEEN = 3
_PERIOD = "10m"
_OVERLAP = timedelta(minutes=1)
"""A repeated report begins so long before its interval, and leaves no gap: what overlaps counts
once."""
_REPORTING = """\
report to a gate:
--report                  report the Xid errors of the last period to the gate, or their absence;
                          upgrades compare their rate before and after. Needs the scope operate
--since DURATION          length of the period that the log must cover, at most 1d (default: 10m, or
                          --every)
--every DURATION          repeat at this interval, for example 10m
--name NODE               name of the node (default: host name)
--cluster NAME = default  cluster of the node
"""


@command(
    """\
--dmesg FILE|-      read this kernel log (dmesg, syslog, journal as text, JSON or export; '-':
                    standard input) instead of this machine's
--driver VERSION    driver version (default: from the log)
""",
    _REPORTING,
    PLACE,
    FORMAT,
    epilog="""\
exit status:
  0  no fatal error
  1  a fatal error or an unhealthy GPU
  2  bad input
  3  nothing could be seen: no readable log, or neither a GPU nor a driver on this machine
  With --report: 0 reported, 3 the log or the gate could not be reached.

examples:
  compatgate health
  sudo dmesg | compatgate health --dmesg -
  journalctl -k -b -1 -o json | compatgate health --dmesg - --format json
  compatgate health --dmesg kern.log --driver 570.124.06
  compatgate health --report --cluster prod-eu --every 10m

Without --dmesg: reads this machine's kernel log, and its GPUs with the extra nvml or
nvidia-smi. Codes and messages are facts: compatgate facts show xid 119, compatgate facts show
error_signatures open-module-needed; overlays may add some.
""",
)
def run(args: argparse.Namespace) -> int:
    """Print errors; return 0 when all is well, 1 when not, 3 when nothing can be seen."""
    for name in ("since", "every", "name"):
        if getattr(args, name) is not None and not args.report:
            raise BadInput("needs --report", field=f"--{name}", hint="add --report")
    with naming("--driver"):
        driver = parse_version("driver", args.driver) if args.driver else None
    if args.report:
        return _report(args)
    document, health = _read_log(args.dmesg, driver) if args.dmesg else _read_host(driver)
    print_answer(args.format, document, lambda: _format(document, health))
    fatal = any(event["severity"] == "fatal" for event in document["events"])
    if fatal or (health is not None and health.state == "sick"):
        return EXIT_FATAL
    if document["problem"]:
        say(f"error: {document['problem']}")
        return EXIT_UNSEEN
    return 0


def _read_log(path: str, driver: Version | None) -> tuple[dict[str, Any], Health | None]:
    from compatgate.canary.health import judge_health, read_log

    facts = load_facts()
    with open_input(path, "--dmesg") as stream:
        errors, problem = read_log(stream, facts.xid, driver, facts.error_signatures)
    document = _document(errors, name_input(path)) | {"problem": problem}
    return document, judge_health(None, (), None, errors.events())


def _read_host(driver: Version | None) -> tuple[dict[str, Any], Health | None]:
    from compatgate.canary.health import judge_health
    from compatgate.canary.health.events import KernelErrors
    from compatgate.canary.health.kernel_log import explain_absence, read_kernel_log
    from compatgate.canary.health.snapshot import ask_gpus

    facts = load_facts()
    answer = ask_gpus()
    now = answer.snapshot
    try:
        kernel = read_kernel_driver()
        loaded = driver or (parse_version("driver", kernel.version) if kernel else None)
        errors, where = read_kernel_log(facts.xid, loaded, facts.error_signatures)
        document = _document(errors, where, answer)
    except Unavailable as error:
        if now is None and answer.said is None:
            raise
        errors = KernelErrors(facts.xid, driver, facts.error_signatures)
        where = "only NVML" if now else "only nvidia-smi"
        document = _document(errors, where, answer)
        document["problem"] = error.detail
    events = errors.events()
    if now is None and not document["problem"]:
        document["problem"] = explain_absence(answer.said, bool(events))
    health = judge_health(None, (now,) if now else (), None, events, rma=facts.xid.rma)
    document["gpus"] = msgspec.to_builtins(now.gpus) if now else []
    if health:
        judged = msgspec.to_builtins(health)
        document["health"] = {name: judged[name] for name in ("state", "reasons", "actions")}
    return document, health


def _document(errors: KernelErrors, source: str, answer: SmiAnswer | None = None) -> dict[str, Any]:
    from compatgate.canary.health.records import Record

    if answer and answer.said:  # it names causes as a log does
        errors.add(Record(answer.said))
    return {
        "events": msgspec.to_builtins(errors.events()),
        "driver": errors.driver,
        "log": source,
        "problem": None,
    }


def _format(document: dict[str, Any], health: Health | None) -> str:
    events = document["events"]
    fatal = sum(event["severity"] == "fatal" for event in events)
    if events:
        kinds = "1 error" if len(events) == 1 else f"{len(events)} errors"
        lines = [f"{kinds}, {fatal} fatal, in {document['log']}"]
    elif document["problem"]:
        lines = [f"no result: {document['log']} shows no error, but that proves nothing"]
    else:
        lines = [f"no GPU error in {document['log']}"]
    for event in events:
        lines += ["", *_list_event(event)]
    gpus = document.get("gpus")
    if gpus:
        lines += ["", f"{len(gpus)} GPU(s): {health.state if health else ''}"]
        judged = [("why", health.reasons), ("do", health.actions)] if health else []
        lines += [row for name, texts in judged for text in texts for row in _row(name, text)]
    elif gpus is not None:
        lines += ["", "NVML found no GPU (it needs a driver, and the extra nvml or nvidia-smi)"]
    return "\n".join(lines)


def _list_event(event: dict[str, Any]) -> list[str]:
    styles = {"fatal": ("bold", "red"), "warning": ("yellow",), "info": ("dim",)}
    severity = event["severity"]
    word = paint(f"{severity.upper():<7}", *styles[severity], colour=wants_colour(sys.stdout))
    doubt = " (likely)" if event["confidence"] == "likely" else ""
    codes = {"Xid": event["xid"], "SXid": event["sxid"]}
    code = next((f"{k} {v}" for k, v in codes.items() if v is not None), event["kind"])
    title = f"{word}  {event['device']}  {code}{doubt}  {event['meaning']}"
    times = "once" if event["count"] == 1 else f"{event['count']} times"
    first, last = event["first_seen"], event["last_seen"]
    if first:
        times += f", {first}" if first == last else f", from {first} to {last}"
    gpu = " ".join(event[name] for name in ("uuid", "serial") if event[name])
    instance = event["gpu_instance"]
    rows = [
        ("do", event["action"]),
        ("repeated", event["investigate"]),
        ("NVIDIA", event["guidance"]),
        ("replace", event["rma"]),
        ("settle", event["next"]),
        ("rules", ", ".join(event["rules"])),
        ("seen", times),
        ("GPU", gpu),
        ("MIG", f"GPU instance {instance}" if instance is not None else ""),
        ("said", event["message"][:200]),
    ]
    lines = [line for name, text in rows if text for line in _row(name, text)]
    return [strip_controls(title), *lines]


def _row(name: str, text: str) -> list[str]:
    return wrap_beside(f"{'':<9}{name:<9}  ", text, width_of(sys.stdout))


def _report(args: argparse.Namespace) -> int:
    if args.every and args.dmesg == "-":
        what = "cannot be combined with --every: standard input can be read only once"
        raise BadInput(what, field="--dmesg", hint="omit --every")
    if args.every and not args.since:
        period = timedelta(seconds=read_interval(args.every)) + _OVERLAP
    else:
        period = parse_duration(args.since or _PERIOD, field="--since")
        if not timedelta() < period <= timedelta(days=1):
            hint = "at most 1d, for example 10m"
            raise BadInput("is not a period", field="--since", value=args.since, hint=hint)
    return repeat(lambda: _report_once(args, period), args.every)


def _report_once(args: argparse.Namespace, period: timedelta) -> int:
    from compatgate.client.operations import Operations

    until = clock.now()
    node = _make_report(args, until - period, until)
    with gate_of(args) as gate:
        answers = [
            ask(gate, Operations.report_health, {"cluster": args.cluster, "nodes": [part]})
            for part in _split(node)
        ]
    parts = [one for answer in answers for one in answer["nodes"]]
    sums = {name: sum(one[name] for one in parts) for name in ("seconds", "xids")}
    stored = {**parts[0], **sums}
    errors = "1 new Xid error" if stored["xids"] == 1 else f"{stored['xids']} new Xid errors"
    where = f"{args.cluster}/{stored['name']}"
    text = f"{where}: {stored['seconds']} s on driver {stored['driver']}, {errors}"
    return print_answer(args.format, stored, strip_controls(text))


def _make_report(args: argparse.Namespace, since: datetime, until: datetime) -> dict[str, Any]:
    """Return what ``POST /nodes/health`` takes of this machine.

    The period begins no earlier than the boot of this machine, or the last load of its driver.
    """
    from compatgate.canary.health.kernel_log import list_xids, read_boot_time

    boot, kernel = read_boot_time(), read_kernel_driver()
    times = list_xids(_read_records(args.dmesg), boot)
    if times.unplaced:
        raise BadInput(
            f"{len(times.unplaced)} errors have no time with a zone, like"
            f" {times.unplaced[0][:120]!r}; nothing was reported",
            field="--dmesg",
            hint="journalctl -k -o json | compatgate health --dmesg - --report",
        )
    since = max([since, *(at for at in (boot, times.loaded) if at is not None and at < until)])
    xids = sorted((x for x in times.found if since <= x.at <= until), key=lambda one: one.at)
    return {
        "name": args.name or socket.gethostname().lower(),
        "since": iso(since),
        "until": iso(until),
        # without one, the gate takes the driver that the node last reported
        "driver": args.driver or (kernel.version if kernel else None),
        "xids": [{"xid": one.xid, "at": iso(one.at)} for one in xids],
    }


def _split(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield reports of following periods, each with as many errors as one may have."""
    xids, since = node["xids"], node["since"]
    while len(xids) > MAX_XIDS and since < xids[MAX_XIDS - 1]["at"] < node["until"]:
        until = xids[MAX_XIDS - 1]["at"]
        yield {**node, "since": since, "until": until, "xids": xids[:MAX_XIDS]}
        xids, since = xids[MAX_XIDS:], until
    yield {**node, "since": since, "xids": xids}


def _read_records(path: str | None) -> Iterable[Record]:
    """Return the records of a log that may concern a GPU."""
    from compatgate.canary.health.kernel_log import read_kernel_records
    from compatgate.canary.health.records import RecordReader

    if path is None:
        return read_kernel_records()[0]
    reader = RecordReader()
    with open_input(path, "--dmesg") as stream:
        found = list(reader.read(stream))
    if not reader.seen:
        raise Unavailable("the log is empty; nothing was reported", field="--dmesg")
    return found
