"""Programs in processes that have their framework: it is imported once, each program is forked.

The import takes longer than most programs on the CPU. What a program sees is what it would see by
itself: its arguments, its environment, its own process, and the framework in one thread.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest
from canary_programs import torch_python

_PATIENCE_S = 300

IMPORTS = {
    # Its backends are imported when they are listed, which takes seconds.
    "torch": "import torch, torch._dynamo; torch._dynamo.list_backends()",
    "jax": "import jax",
    "tensorflow": "import tensorflow",
    "onnxruntime": "import onnxruntime",
}
"""Framework to what the process imports before it forks."""

_FORKING = """
import json, os, runpy, signal, sys, traceback

def run(asked):
    signal.alarm(asked["seconds"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    for number, file in enumerate([os.devnull, *asked["files"]]):
        os.dup2(os.open(file, os.O_RDWR), number)
    sys.argv, status = asked["arguments"], 1
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        run(json.loads(line))
    _, ended = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(ended), flush=True)
"""


def run_with_torch(
    arguments: Sequence[str | Path],
    environment: Mapping[str, str] | None = None,
    framework: str = "torch",
) -> subprocess.CompletedProcess[bytes]:
    """Run a program with a framework in one thread; skips the test where it is not installed.

    Args:
        arguments: the program's file, and what it is called with.
        environment: on top of this process's.
        framework: of `IMPORTS`.
    """
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, name) for name in ("output", "errors")]
        for file in files:
            file.touch()
        asked = {
            "arguments": [str(one) for one in arguments],
            "environment": {**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})},
            "files": [str(file) for file in files],
            "seconds": _PATIENCE_S,
        }
        forking = _forking(torch_python(), framework)
        assert forking.stdin
        assert forking.stdout
        forking.stdin.write(json.dumps(asked).encode() + b"\n")
        forking.stdin.flush()
        answer = forking.stdout.readline()
        assert answer, f"the process that has {framework} has ended"
        output, errors = (file.read_bytes() for file in files)
    return subprocess.CompletedProcess(asked["arguments"], int(answer), output, errors)


@cache
def _forking(python: str, framework: str) -> subprocess.Popen[bytes]:
    """Start the process that has a framework and forks programs."""
    there = f"import importlib.util as u; exit(not u.find_spec({framework!r}))"
    if subprocess.run([python, "-c", there], check=False).returncode:
        pytest.skip(f"{framework} is not installed (`make torch` does that)")
    process = subprocess.Popen(
        [python, "-c", f"{IMPORTS[framework]}\n{_FORKING}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    atexit.register(process.communicate)
    return process
