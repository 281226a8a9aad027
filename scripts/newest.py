"""Run the tests with the newest of everything that pyproject.toml admits, and say what broke.

Start it with ``make newest``; ``make newest TESTS=tests/unit/core`` runs these tests alone. It
installs into its own environment, ``.venv-newest``, and ends with 1 when something fails.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".venv-newest"
BIN = FOLDER / "bin"
REPORT = ROOT / "build" / "newest.xml"
PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)
STEP = re.compile(r"^make(?:\[\d+\])?: \*\*\* \[[^\]]*?([\w-]+)\]", re.MULTILINE)


def install(uv: str) -> None:
    """Install the newest versions; mark the environment as installed, so that make leaves it."""
    wanted = ["--upgrade", "--refresh", "--editable", ".", "--group", "dev"]
    for command in (
        [uv, "venv", "--quiet", "--clear", "--python", sys.executable, FOLDER],
        [uv, "pip", "install", "--quiet", "--python", BIN / "python", *wanted],
    ):
        subprocess.run(command, cwd=ROOT, check=True)  # noqa: S603 - uv of this project
    (FOLDER / ".installed").touch()


def compare(uv: str) -> list[str]:
    """Return a line for each package whose version differs from the lock."""
    command = [uv, "pip", "freeze", "--python", BIN / "python"]
    frozen = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout  # noqa: S603
    locked: dict[str, set[str]] = {}  # one version for each range of Pythons
    for name, version in PIN.findall((ROOT / "requirements-dev.txt").read_text()):
        locked.setdefault(name, set()).add(version)
    return [
        f"  {name} {' or '.join(sorted(locked.get(name, {'(not in the lock)'})))} -> {version}"
        for name, version in PIN.findall(frozen)
        if version not in locked.get(name, set())
    ]


def run_tests(tests: list[str]) -> list[str]:
    """Run ``make check``, or some tests; return the steps and tests that fail."""
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.unlink(missing_ok=True)
    report = f"--junit-xml={REPORT}"
    if tests:
        command = [str(BIN / "python"), "-m", "pytest", *tests]
    else:
        command = ["make", "--keep-going", f"VENV={FOLDER.name}", "check"]
    environment = {**os.environ, "PYTEST_ADDOPTS": report}
    steps: list[str] = []
    process = subprocess.Popen(  # noqa: S603
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    for line in process.stdout or ():
        sys.stdout.write(line)
        steps += STEP.findall(line)
    status = process.wait()
    failed = [f"make {step}" for step in dict.fromkeys(steps) if step != "check"]
    failed += list_failures() if REPORT.is_file() else []
    return failed or [" ".join(command)] * (status != 0)


def list_failures() -> list[str]:
    """Return the tests that failed, by the report of pytest."""
    cases = ET.parse(REPORT).getroot().iter("testcase")  # noqa: S314 - pytest wrote it
    return [
        f"{case.get('classname', '')}::{case.get('name', '')}"
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    ]


def main(tests: list[str]) -> int:
    """Install, run, and print what differs and what fails."""
    uv = os.environ.get("UV", "uv")
    install(uv)
    differing = compare(uv)
    failed = run_tests(tests)
    print(f"\n{len(differing)} versions differ from the lock:", *differing, sep="\n")
    print(f"\n{len(failed)} failed:" if failed else "\nnothing failed", *failed, sep="\n  ")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
