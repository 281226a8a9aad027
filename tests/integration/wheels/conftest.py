"""A package index of the tests' own, and the command that measures from it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from catalogue import own_cache
from wheel_server import WheelServer, wheel_server

_PROGRAM = """
import sys
from compatgate.cli.main import main
status = main(sys.argv[1:])
sys.stdout.flush()
with open("/proc/self/status") as file:  # ru_maxrss would be that of the tests, at the least
    (peak,) = [line.split()[1] for line in file if line.startswith("VmHWM")]
print(f"peak {int(peak) // 1024}", file=sys.stderr)
sys.exit(status)
"""


class Outcome(NamedTuple):
    """What the command printed, and the most memory that it had, in MiB."""

    status: int
    records: list[dict[str, Any]]
    text: str
    errors: str
    peak: int


@pytest.fixture
def server() -> Iterator[WheelServer]:
    with wheel_server() as served:
        yield served


@pytest.fixture
def measure(server: WheelServer, tmp_path: Path) -> Callable[..., Outcome]:
    """``compatgate facts measure``, in a process and with a cache of its own."""

    def run(*arguments: str, json_format: bool = True) -> Outcome:
        form = ["--format", "json"] if json_format else []
        indexes = ["--index", server.index]
        environment = os.environ | {"XDG_CACHE_HOME": own_cache(tmp_path / "cache")}
        result = subprocess.run(
            [sys.executable, "-c", _PROGRAM, "facts", "measure", *form, *indexes, *arguments],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
            timeout=300,
        )
        assert "Traceback" not in result.stderr, result.stderr
        *errors, last = result.stderr.strip().splitlines()
        records = [json.loads(line) for line in result.stdout.splitlines()] if json_format else []
        peak = int(last.removeprefix("peak "))
        return Outcome(result.returncode, records, result.stdout, "\n".join(errors), peak)

    return run
