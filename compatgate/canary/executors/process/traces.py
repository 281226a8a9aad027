"""Finding processes again: by number and start, and by the mark in their environment."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

from compatgate.errors import Infrastructure

MARK = "COMPATGATE_JOB"
_PATIENCE_S = 10.0


def started(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None where there is none any more.

    Source: proc_pid_stat(5), fields 3 and 22.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def is_alive(pid: int, since: int) -> bool:
    """Whether the process with this number is still the one that started then."""
    return started(pid) == since


def ask_to_end(pid: int, since: int) -> None:
    """SIGTERM to a launcher."""
    if is_alive(pid, since):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


def kill_marked(mark: str) -> int:
    """Kill every process whose mark begins so; how many there were.

    Raises:
        Infrastructure: some would not go.
    """
    killed: set[int] = set()
    deadline = time.monotonic() + _PATIENCE_S
    while found := _marked(mark):
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            killed.add(pid)
        if time.monotonic() > deadline:
            raise Infrastructure(f"processes {found} do not end", field="host")
        time.sleep(0.02)
    return len(killed)


def _marked(mark: str) -> list[int]:
    wanted = f"{MARK}={mark}".encode()
    found = []
    for name in os.listdir("/proc"):
        if not name.isdecimal() or int(name) == os.getpid():
            continue
        with suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
            marked = any(_begins(part, wanted) for part in file.read().split(b"\0"))
            if marked and started(int(name)) is not None:
                found.append(int(name))
    return found


def _begins(variable: bytes, wanted: bytes) -> bool:
    return variable.startswith(wanted) if wanted.endswith(b"/") else variable == wanted
