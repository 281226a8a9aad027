"""When a line of a log was written, in every way that kernel logs say so."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Literal, NamedTuple

Clock = Literal["boot", "epoch", "iso", "ctime", "syslog"]
BEST: tuple[Clock, ...] = ("epoch", "iso", "ctime", "syslog", "boot")
"""Clocks in the order in which a reader wants them."""


class Stamp(NamedTuple):
    """A time on one clock; times of different clocks are not compared."""

    clock: Clock
    text: str


# 6,1234,5678,-;message: priority, sequence, microseconds since boot (Documentation/ABI/dev-kmsg).
_KMSG = re.compile(r"^(?:<\d+>)?\s*\d{1,3},\d+,(\d{1,18})(?:,[^;]{0,80})?;")
_BOOT = re.compile(r"\[\s*(\d{1,10}\.\d{1,9})\](?!:? \w+\[)")
_ISO = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?"
)
_CTIME = re.compile(r"\b[^\W\d_]{2,4} [^\W\d_]{3,4} {1,2}\d{1,2} \d\d:\d\d:\d\d \d{4}")
_SYSLOG = re.compile(r"(?:^|[>\s])([^\W\d_]{3,4}\.? {1,2}\d{1,2} \d\d:\d\d:\d\d(?:\.\d{1,9})?)\b")
_UNIX = re.compile(r"^(\d{9,11}\.\d{1,9}) ")


def stamps(prefix: str) -> tuple[Stamp, ...]:
    """The times that stand before a message; none where it has none."""
    found = []
    if match := _KMSG.match(prefix):
        found.append(boot(int(match[1]) / 1e6))
    elif boots := _BOOT.findall(prefix):
        found.append(boot(float(boots[-1])))
    if match := _ISO.search(prefix):
        found.append(Stamp("iso", match[0]))
    elif match := _CTIME.search(prefix):
        found.append(Stamp("ctime", match[0]))
    elif match := _SYSLOG.search(prefix):
        found.append(Stamp("syslog", match[1]))
    elif match := _UNIX.match(prefix):
        found += epoch(float(match[1]) * 1e6)
    return tuple(found)


def boot(seconds: float) -> Stamp:
    """Seconds since boot."""
    return Stamp("boot", f"{seconds:.6f} s after boot")


def epoch(microseconds: float) -> tuple[Stamp, ...]:
    """Microseconds since 1970, as journald counts; none where that is no date."""
    try:
        moment = datetime.fromtimestamp(microseconds / 1e6, UTC)
    except (OverflowError, ValueError, OSError):
        return ()
    return (Stamp("epoch", moment.isoformat(timespec="microseconds")),)
