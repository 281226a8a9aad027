"""Commands that do the same again and again, until they are told to stop."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable

from compatgate.errors import BadInput, CompatgateError

_LEAST_S = 30


def interval(text: str, field: str = "--every") -> float:
    """Seconds of a duration that an option names.

    Raises:
        BadInput: it is none, or too short.
    """
    from compatgate.documents.durations import parse_duration

    seconds = parse_duration(text, field=field).total_seconds()
    if seconds < _LEAST_S:
        raise BadInput("is too often", field=field, value=text, hint=f"at least {_LEAST_S}s")
    return seconds


def again(act: Callable[[], int], seconds: float) -> int:
    """Act, wait, and act again; what fails is told, and tried the next time. 0 when it is stopped.

    Args:
        act: what is done.
        seconds: between two times.
    """
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
