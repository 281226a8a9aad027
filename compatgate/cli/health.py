"""Run ``compatgate health``: find GPU and NVSwitch errors in a kernel log, with actions."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from compatgate.errors import BadInput, Unavailable
from compatgate.kit.cli.options import add_format

if TYPE_CHECKING:
    import argparse

    from compatgate.canary.health import Health
    from compatgate.canary.health.events import KernelErrors
    from compatgate.core.versions import Version

EXIT_FATAL = 1
EXIT_NO_SOURCE = 3
_EXAMPLES = """\
examples:
  compatgate health
  sudo dmesg | compatgate health --dmesg -
  journalctl -k -b -1 -o json | compatgate health --dmesg - --format json
  compatgate health --dmesg kern.log --driver 570.124.06

Without --dmesg: reads this machine's kernel log and, with pip install compatgate[nvml], its GPUs.
Exit status: 0 no fatal error, 1 a fatal error or an unhealthy GPU, 2 bad input, 3 no log and no GPU
to read. Codes are facts: compatgate facts show xid 119; overlays may add codes,
see docs/how-to/health.md.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options: a log, and its driver version."""
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "--dmesg",
        metavar="FILE|-",
        help="read this kernel log (dmesg, syslog, journal as text, JSON or export; '-': standard"
        " input) instead of this machine's",
    )
    parser.add_argument(
        "--driver",
        metavar="VERSION",
        help="driver version (default: from the log)",
    )
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Print errors; return 0 without fatal errors, 1 with, 3 without a log and a GPU.

    Raises:
        BadInput: the log cannot be read, or the driver is not a version.
        Unavailable: this machine's log is not readable, and no GPU answers.
    """
    from compatgate.core.versions import parse_version

    try:
        driver = parse_version("driver", args.driver) if args.driver else None
    except BadInput as error:
        error.field = "--driver"
        raise
    document, health = _log(args.dmesg, driver) if args.dmesg else _host(driver)
    if args.format == "json":
        print(json.dumps(document))
    else:
        print(_text(document, health))
    fatal = any(event["severity"] == "fatal" for event in document["events"])
    if fatal or (health is not None and health.state == "sick"):
        return EXIT_FATAL
    if document["problem"]:
        print(f"error: {document['problem']}", file=sys.stderr)
        return EXIT_NO_SOURCE
    return 0


def _log(path: str, driver: Version | None) -> tuple[dict[str, Any], Health | None]:
    from compatgate.canary.health import judge_health, read_log
    from compatgate.catalog import load_facts

    table = load_facts().xid
    try:
        if path == "-":
            errors, problem = read_log(sys.stdin.buffer, table, driver)
        else:
            with open(path, "rb") as stream:
                errors, problem = read_log(stream, table, driver)
    except OSError as error:
        raise BadInput(
            f"cannot read '{path}'", field="--dmesg", value=path, hint=error.strerror or str(error)
        ) from None
    document = _document(errors, "standard input" if path == "-" else path)
    document["problem"] = problem
    return document, judge_health(None, (), None, errors.events())


def _host(driver: Version | None) -> tuple[dict[str, Any], Health | None]:
    from compatgate.canary.health import judge_health, snapshot
    from compatgate.canary.health.events import KernelErrors
    from compatgate.canary.health.kernel_log import read_kernel_log
    from compatgate.catalog import load_facts

    table = load_facts().xid
    now = snapshot()
    try:
        errors, where = read_kernel_log(table, driver or _loaded_driver())
        document = _document(errors, where)
    except Unavailable as error:
        if now is None:
            raise
        errors = KernelErrors(table, driver)
        document = _document(errors, "NVML alone")
        document["problem"] = error.detail
    health = judge_health(None, (now,) if now else (), None, errors.events())
    import msgspec

    document["gpus"] = msgspec.to_builtins(now.gpus) if now else []
    if health:
        judged = health.to_json()
        document["health"] = {name: judged[name] for name in ("state", "reasons", "actions")}
    return document, health


def _loaded_driver() -> Version | None:
    from compatgate.core.versions import parse_version
    from compatgate.discovery.driver import read_kernel_driver

    found = read_kernel_driver()
    return parse_version("driver", found.version) if found else None


def _document(errors: KernelErrors, source: str) -> dict[str, Any]:
    return {
        "events": [event.to_json() for event in errors.events()],
        "driver": errors.driver,
        "log": source,
        "problem": None,
    }


# --- text -----------------------------------------------------------------------------------


def _text(document: dict[str, Any], health: Health | None) -> str:
    events = document["events"]
    fatal = sum(event["severity"] == "fatal" for event in events)
    lines = []
    if document["problem"] and not events:
        lines.append(f"the log is unknown: {document['log']}")
    elif not events:
        lines.append(f"no GPU error in {document['log']}")
    else:
        kinds = "1 error" if len(events) == 1 else f"{len(events)} errors"
        lines.append(f"{kinds}, {fatal} fatal, in {document['log']}")
    for event in events:
        lines += ["", *_event(event)]
    if "gpus" in document:
        lines += ["", *_gpus(document, health)]
    return "\n".join(lines)


def _event(event: dict[str, Any]) -> list[str]:
    from compatgate.kit.cli.terminal import paint, strip_controls, wants_colour

    styles = {"fatal": ("bold", "red"), "warning": ("yellow",), "info": ("dim",)}
    severity = event["severity"]
    word = paint(f"{severity.upper():<7}", *styles[severity], colour=wants_colour(sys.stdout))
    title = f"{word}  {event['device']}  {_code(event)}  {event['meaning']}"
    gpu = " ".join(event[name] for name in ("uuid", "serial") if event[name])
    instance = event["gpu_instance"]
    rows = [
        ("do", event["action"]),
        ("repeated", event["investigate"]),
        ("seen", _occurrences(event)),
        ("GPU", gpu),
        ("MIG", f"GPU instance {instance}" if instance is not None else ""),
        ("said", event["message"][:200]),
    ]
    return [
        strip_controls(title),
        *(line for name, text in rows if text for line in _row(name, text)),
    ]


def _row(name: str, text: str) -> list[str]:
    from compatgate.kit.cli.terminal import width_of, wrap

    first, *rest = wrap(text, width_of(sys.stdout) - 20)
    return [f"         {name:<9}  {first}", *(f"{'':<20}{line}" for line in rest)]


def _code(event: dict[str, Any]) -> str:
    if event["xid"] is not None:
        return f"Xid {event['xid']}"
    if event["sxid"] is not None:
        return f"SXid {event['sxid']}"
    return str(event["kind"])


def _occurrences(event: dict[str, Any]) -> str:
    times = "once" if event["count"] == 1 else f"{event['count']} times"
    first, last = event["first_seen"], event["last_seen"]
    if not first:
        return times
    return f"{times}, {first}" if first == last else f"{times}, from {first} to {last}"


def _gpus(document: dict[str, Any], health: Health | None) -> list[str]:
    if not document["gpus"]:
        return ["NVML found no GPU (it needs a driver, and compatgate[nvml])"]
    lines = [f"{len(document['gpus'])} GPU(s) through NVML: {health.state if health else ''}"]
    if health:
        for reason in health.reasons:
            lines += _row("why", reason)
        for action in health.actions:
            lines += _row("do", action)
    return lines
