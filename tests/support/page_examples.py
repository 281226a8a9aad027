"""Run the console examples of a documentation page, and compare what they print with the page."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import prepared

DOCS = Path(__file__).parents[2] / "docs"
HOST = "http://127.0.0.1:8080"
"""The address of the gate on every page."""
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HERE = re.compile(r".*?<<'END'\n.*?^END$", re.DOTALL | re.MULTILINE)
_LINES = re.compile(r".*(\n    .*|\\\n.*)*")


def read_examples(page: Path) -> list[tuple[str, str]]:
    """Commands with their here-documents and further lines, and what each prints."""
    found = []
    for block in _BLOCK.findall(page.read_text()):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command = _HERE.match(part) or _LINES.match(part)
            assert command
            found.append((command[0], part[command.end() :].strip("\n")))
    return found


def matches(expected: str, printed: str) -> bool:
    """Whether it is what was expected, ``...`` standing for anything."""
    pattern = ".*".join(re.escape(part) for part in expected.split("..."))
    return re.fullmatch(pattern, printed.rstrip("\n"), re.DOTALL) is not None


def run_example(command: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, where ``compatgate`` is this one."""
    return subprocess.run(
        ["sh", "-c", re.sub(r"^compatgate ", f"{prepared.program()} ", command)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(DOCS.parent), **environment},
        check=False,
    )
