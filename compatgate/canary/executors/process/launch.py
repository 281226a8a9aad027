"""Launch one job: start it with limits, store its output, and leave no process behind.

This separate program survives the worker that started it, and then ends the job. It adopts the
job's orphans (``PR_SET_CHILD_SUBREAPER``).
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from compatgate.errors import quote_error

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 36, 38
_LOOK_S = 0.1
_PAGE = resource.getpagesize()
_libc = ctypes.CDLL(None, use_errno=True)


class Launcher:
    """One job from start to end."""

    def __init__(self, order: dict[str, Any], folder: Path) -> None:
        self._order = order
        self._folder = folder
        self._room: int = order["output"]
        self._rest: dict[int, bytearray] = {}
        self._ended = {"code": 0, "oom": False, "reason": ""}
        self._asked = False

    def run(self) -> None:
        """Run the job, then write its result."""
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "_asked", True))
        self._write("launcher.json", {"pid": os.getpid(), "started": read_stat(os.getpid())[19]})
        try:
            program = subprocess.Popen(  # noqa: S603
                self._order["command"],
                cwd=self._order["folder"],
                env=self._order["environment"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                preexec_fn=self._limit,
                start_new_session=True,
            )
        except OSError as error:
            self._ended |= {"code": 127, "reason": quote_error(error)}
        else:
            with (self._folder / "output").open("ab", buffering=0) as output:
                self._hold(program, output)
        self._write("ended.json", self._ended)

    def _limit(self) -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (self._order["file"],) * 2)

    def _hold(self, program: subprocess.Popen[bytes], output: Any) -> None:
        streams = selectors.DefaultSelector()
        for stream in filter(None, (program.stdout, program.stderr)):
            streams.register(stream, selectors.EVENT_READ)
        deadline = time.monotonic() + self._order["timeout"]
        next_look = 0.0
        while True:
            self._read(streams, _LOOK_S, output)
            if time.monotonic() < next_look:
                continue
            next_look = time.monotonic() + _LOOK_S
            if program.poll() is not None:
                break
            if why := self._must_end(deadline):
                self._ended |= {"reason": why, "oom": why == "out of memory"}
                break
        while result := _descendants():
            for pid in result:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            time.sleep(0.01)
        # No process is left that could write to the pipes.
        while streams.get_map() and self._read(streams, 0.5, output):
            pass
        for rest in self._rest.values():
            self._put(bytes(rest), output)
        code = program.wait()
        self._ended["code"] = code if code >= 0 else 128 - code

    def _read(self, streams: selectors.BaseSelector, wait_s: float, output: Any) -> bool:
        """Store whole lines, so that the two streams do not cut into each other's lines."""
        ready = streams.select(wait_s)
        for key, _ in ready:
            if data := os.read(key.fd, 1 << 16):
                rest = self._rest.setdefault(key.fd, bytearray())
                rest += data
                end = len(rest) if len(rest) > 1 << 21 else rest.rfind(b"\n") + 1
                self._put(bytes(rest[:end]), output)
                del rest[:end]
            else:
                streams.unregister(key.fileobj)
        return bool(ready)

    def _put(self, data: bytes, output: Any) -> None:
        taken = data[: self._room]
        self._room -= len(taken)
        if taken:
            output.write(taken)

    def _must_end(self, deadline: float) -> str:
        if self._asked:
            return "killed"
        if os.getppid() != self._order["worker"]:
            return "the worker is gone"
        if time.monotonic() > deadline:
            return "time is up"
        processes = _descendants()
        if len(processes) > self._order["pids"]:
            return f"more than {self._order['pids']} processes"
        pages = sum(fields[21] for pid in processes if (fields := read_stat(pid)))
        return "out of memory" if pages * _PAGE > self._order["memory"] else ""

    def _write(self, name: str, body: dict[str, Any]) -> None:
        part = self._folder / f".{name}.part"
        part.write_text(json.dumps(body))
        part.replace(self._folder / name)


def read_stat(pid: int) -> list[int]:
    """Return the fields after the name in ``/proc/PID/stat``, the state as a code; [] if gone.

    Source: proc_pidread_stat(5).
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return []
    state, *numbers = text.rpartition(")")[2].split()
    return [ord(state), *map(int, numbers)]


def _descendants() -> list[int]:
    """Return every process below this one that is not a zombie."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal() and (fields := read_stat(int(name))) and fields[0] != ord("Z"):
            parents[int(name)] = fields[1]
    results: list[int] = []
    wanted = {os.getpid()}
    while wanted:
        wanted = {pid for pid, parent in parents.items() if parent in wanted}
        results += wanted
    return results


def main() -> None:
    """Read the order and execute it."""
    path = Path(sys.argv[1])
    Launcher(json.loads(path.read_text()), path.parent).run()


if __name__ == "__main__":
    main()
