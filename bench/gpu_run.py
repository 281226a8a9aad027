"""Runs one program of bench/gpu.py until it ends or its time is up, and keeps what it printed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from gpu_plan import Kind, Step
from msgspec import Struct

from compatgate.canary.workload import Workload
from compatgate.resources import canary_dir

_LOG = 20_000
"""Bytes of standard error that are kept, its end."""


class Ran(Struct, frozen=True):
    """A run that came to an end by itself.

    Attributes:
        exit: its status, above 128 a signal.
        started: UTC.
        digest: of the workload.
    """

    workload: str
    kind: Kind
    label: str
    command: list[str]
    environment: dict[str, str]
    exit: int
    seconds: float
    started: str
    digest: str


class Kept:
    """The folder of results: ``output/WORKLOAD/LABEL.jsonl`` as printed, and ``runs.jsonl``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._runs = folder / "runs.jsonl"
        folder.mkdir(parents=True, exist_ok=True)

    def runs(self) -> list[Ran]:
        """Runs that have ended; a last line that was cut off is none."""
        found = []
        for line in self._runs.read_bytes().splitlines() if self._runs.exists() else ():
            try:
                found.append(msgspec.json.decode(line, type=Ran))
            except msgspec.MsgspecError:
                continue
        return found

    def output(self, step: Step | Ran) -> Path:
        """What it printed on standard output."""
        return self.folder / "output" / step.workload / f"{step.label}.jsonl"

    def note(self, ran: Ran) -> str:
        """The last line that a program wrote for people, where it did not end well or said little.

        What it printed as JSON is no such line.
        """
        path = self.output(ran)
        log = path.with_suffix(".log")
        lines = [*path.read_text(errors="replace").splitlines()]
        if ran.exit:
            lines += log.read_text(errors="replace").splitlines() if log.exists() else []
        elif any('"metric"' in line or '"check"' in line for line in lines):
            return ""
        spoken = [line.strip() for line in lines if line.strip() and not line.startswith("{")]
        return spoken[-1][:200] if spoken else ""

    def add(self, ran: Ran) -> None:
        """Remember a run, once its output is whole."""
        with self._runs.open("ab") as file:
            file.write(msgspec.json.encode(ran) + b"\n")


def run(
    kept: Kept,
    workload: Workload,
    step: Step,
    command: Sequence[str],
    environment: Mapping[str, str],
    limit: float,
) -> Ran | None:
    """Run a program in its workload's folder.

    Args:
        kept: where its output goes.
        workload: whose program it is.
        step: of the plan.
        command: argument vector.
        environment: on top of this process's and the workload's.
        limit: seconds, after which it and all that it started are killed.

    Returns:
        None where its time was up: then nothing of it is kept but a ``.cut`` file.
    """
    path = kept.output(step)
    path.parent.mkdir(parents=True, exist_ok=True)
    part, log = path.with_suffix(".cut"), path.with_suffix(".log")
    own = {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    started, begin = datetime.now(UTC), time.monotonic()
    with part.open("wb") as output, log.open("wb") as errors:
        process = subprocess.Popen(
            command,
            cwd=workload.folder,
            env={**os.environ, **own, **workload.environment, **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            start_new_session=True,
        )
        code = _wait(process, limit)
    _shorten(log)
    if code is None:
        return None
    part.replace(path)
    ran = Ran(
        step.workload,
        step.kind,
        step.label,
        list(command),
        dict(environment),
        code if code >= 0 else 128 - code,
        round(time.monotonic() - begin, 2),
        started.isoformat(timespec="seconds"),
        workload.digest,
    )
    kept.add(ran)
    return ran


def gpus_here(python: str) -> list[dict[str, Any]]:
    """GPUs that CUDA gives to a process of this machine; empty where it gives none."""
    code = "import json, canary_cuda; print(json.dumps(canary_cuda.described()[0]))"
    lib = str(canary_dir() / "lib")
    done = subprocess.run(
        [python, "-c", code],
        env={**os.environ, "PYTHONPATH": lib, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        check=False,
        timeout=60,
    )
    found: list[dict[str, Any]] = json.loads(done.stdout) if done.returncode == 0 else []
    return found or []


def _wait(process: subprocess.Popen[bytes], limit: float) -> int | None:
    try:
        return process.wait(timeout=max(limit, 0.0))
    except subprocess.TimeoutExpired:
        return None
    finally:
        # Also what it started, and when this program is interrupted.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _shorten(log: Path) -> None:
    said = log.read_bytes()
    if not said:
        log.unlink()
    elif len(said) > _LOG:
        log.write_bytes(said[-_LOG:])
