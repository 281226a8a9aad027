"""Run ``compatgate health --report``: tell a gate which Xid errors this node had."""

from __future__ import annotations

import argparse
import socket
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from compatgate.cli.gate import gate_of
from compatgate.discovery.driver import read_kernel_driver
from compatgate.documents.quantities import parse_duration
from compatgate.errors import BadInput, Unavailable
from compatgate.gate_client import ask
from compatgate.kit import clock
from compatgate.kit.cli.options import read_interval, repeat
from compatgate.kit.cli.output import open_input, print_answer
from compatgate.kit.cli.terminal import strip_controls
from compatgate.kit.clock import iso
from compatgate.service.nodes.reports.schemas import MAX_XIDS

if TYPE_CHECKING:
    from compatgate.canary.health.records import Record

DEFAULT_PERIOD = "10m"
_OVERLAP = timedelta(minutes=1)
"""A repeated report begins so long before its interval, and leaves no gap: what overlaps counts
once."""
USAGE = """\
report to a gate:
--report                  report the Xid errors of the last period to the gate, or their absence;
                          upgrades compare their rate before and after. Needs the scope operate
--since DURATION          length of the period that the log must cover, at most 1d (default: 10m, or
                          --every)
--every DURATION          repeat at this interval, for example 10m
--name NODE               name of the node (default: host name)
--cluster NAME = default  cluster of the node
"""


def run(args: argparse.Namespace) -> int:
    """Report once, or at an interval; return 0."""
    if args.every and args.dmesg == "-":
        what = "cannot be combined with --every: standard input can be read only once"
        raise BadInput(what, field="--dmesg", hint="omit --every")
    if args.every and not args.since:
        period = timedelta(seconds=read_interval(args.every)) + _OVERLAP
    else:
        period = _read_period(args.since or DEFAULT_PERIOD)
    return repeat(lambda: _report(args, period), args.every)


def _read_period(text: str) -> timedelta:
    period = parse_duration(text, field="--since")
    if not timedelta() < period <= timedelta(days=1):
        hint = "at most 1d, for example 10m"
        raise BadInput("is not a period", field="--since", value=text, hint=hint)
    return period


def _report(args: argparse.Namespace, period: timedelta) -> int:
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
