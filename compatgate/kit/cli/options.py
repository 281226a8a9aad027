"""Add shared options, read their values, and repeat a command at an interval."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from compatgate.errors import BadInput, CompatgateError
from compatgate.kit import logs
from compatgate.kit.cli.output import shorten_text, strip_controls
from compatgate.kit.cli.usage import add_usage

if TYPE_CHECKING:
    import argparse
    from datetime import datetime

LONGEST_REASON = 2000
"""Maximum characters of a revision's reason."""
_LEAST_S = 30
DATABASE = """\
--database URL  postgresql://user@host/name, or path of an SQLite file ($COMPATGATE_DATABASE, else a
                file in the user's data folder)
"""
SERVER = """\
--server URL   URL of the gate (default: $COMPATGATE_SERVER)
--token TOKEN  access token (default: $COMPATGATE_TOKEN)
"""
PLACE = SERVER + DATABASE
FORMAT = "--format {text,json} = text  output format"
FORMAT_OR_MARKDOWN = "--format {text,json,markdown} = text  output format"
AUTHORSHIP = """\
--reason REASON  reason, kept with the revision
changed_by: --author AUTHOR  author (default: your user name; a server records the token's name)
"""
AUTHOR = "changed_by: --author NAME  author of the change (default: your user name)\n"
CHANGES = """\
--set NAME=VALUE,... ...  change: driver, gpu, os or cpu of the pools, or a component of every stack
--pool NAME               change only this pool
"""
LIMIT = "--limit N  number of items (default: all)"
FORCE = "--force  accept suites that a worker will bring later, with a warning"


def add_log_format(group: argparse._ActionsContainer, *, level: str) -> None:
    """Add the level of the log, with its default, and the format."""
    usage = f"""\
--log-level {{{",".join(logs.LEVELS)}}} = {level}  log level
--log-format {{{",".join(logs.FORMATS)}}} = text  format of log lines; json: one object a line
"""
    add_usage(group, usage)


def reason_of(args: argparse.Namespace, otherwise: str) -> str:
    """Return the reason of a change."""
    if args.reason:
        return str(args.reason)
    return shorten_text(strip_controls(otherwise).replace("\n", "\ufffd"), LONGEST_REASON)


def read_moment(text: str | None, option: str, *, end_of_day: bool = False) -> datetime | None:
    """Read the time that an option names."""
    from compatgate.kit.clock import parse_moment

    return parse_moment(text, field=option, end_of_day=end_of_day) if text else None


def revision_or_time(text: str, option: str) -> int | datetime:
    """Read an option that names a matrix: a revision's number, or a time."""
    from compatgate.kit.clock import parse_moment

    if text.isascii() and text.isdecimal() and len(text) < len("20261103"):
        return int(text)
    try:
        return parse_moment(text, field=option, end_of_day=True)
    except BadInput as error:
        error.hint = f"a revision's number, or a time {error.hint}"
        raise


def user_name() -> str:
    """Return the name of the user."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # in a container the user may have no name
        return f"uid {os.getuid()}"


def add_workloads(group: argparse._ActionsContainer) -> None:
    """Add the option for operators' own workloads."""
    usage = """\
--workloads DIR ...  folder of additional workloads and suites ($COMPATGATE_WORKLOADS); may be
                     repeated
"""
    add_usage(group, usage, workloads={"default": None})


def note_warnings(warnings: Iterable[str]) -> None:
    """Print the warnings of an answer on standard error."""
    for text in warnings:
        print(f"warning: {strip_controls(text)}", file=sys.stderr)


def read_interval(text: str, field: str = "--every", least_s: int = _LEAST_S) -> float:
    """Read a duration option in seconds."""
    from compatgate.documents.quantities import parse_duration

    seconds = parse_duration(text, field=field).total_seconds()
    if seconds < least_s:
        raise BadInput("is too short", field=field, value=text, hint=f"at least {least_s}s")
    return seconds


def repeat(act: Callable[[], int], every: str | None) -> int:
    """Act once, or at an interval until a signal; then print errors, continue, and return 0."""
    if every is None:
        return act()
    import signal
    import threading

    seconds = read_interval(every)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    while not stop.is_set():
        try:
            act()
        except CompatgateError as error:
            print(f"error: {error.detail}", file=sys.stderr, flush=True)
        sys.stdout.flush()
        stop.wait(seconds)
    return 0
