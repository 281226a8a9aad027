"""The commands of docs/tutorial give the documented answers, page after page."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import prepared
import pytest
from staging import until

from compatgate.resources import canary_dir

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial"
MEASURED = "(time.perf_counter() - begin) * 1000"
PAGES = ("first-verdict", "bless-an-entry", "run-a-canary", "admission")
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
ADDRESS = "http://127.0.0.1:8080"


@dataclass(frozen=True)
class Step:
    """A command of a page, its exit status and its output; or a file that the page shows."""

    text: str
    expected: str = ""
    status: int = 0
    file: str = ""


def steps(page: str) -> Iterator[Step]:
    """Yield what a reader of a page writes and types, in order."""
    for language, title, block in BLOCK.findall((TUTORIAL / f"{page}.md").read_text()):
        if title:
            yield Step(block, file=title)
        if language != "console":
            continue
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, expected = part.partition("\n")
            text, _, remark = command.partition("   # exits with ")
            yield Step(text, expected, int(remark or 0))


def matches(expected: str, printed: str) -> bool:
    """Say whether the output is as documented; ``...`` stands for anything."""
    parts = [re.escape(part.strip("\n")) for part in expected.rstrip("\n").split("...")]
    return re.fullmatch(".*".join(parts), printed.rstrip("\n"), re.DOTALL) is not None


def steady_workloads(folder: Path) -> Path:
    """Return a folder with the hello canary, with times that no load changes."""
    made = folder / "steady" / "hello-cpu"
    shutil.copytree(canary_dir() / "hello-cpu", made)
    manifest, program = made / "workload.toml", made / "program.py"
    manifest.write_text("replaces = true\n" + manifest.read_text())
    text = program.read_text()
    assert MEASURED in text
    program.write_text(text.replace(MEASURED, "2.0 + 0.001 * (done % 7)"))
    return made.parent


class Reader:
    """Types the commands of the tutorial, in a folder and on a database of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.address = folder, ADDRESS
        self.running: list[subprocess.Popen[str]] = []
        programs = (str(prepared.program().parent), str(Path(sys.executable).parent))
        path = os.pathsep.join((*programs, os.environ["PATH"]))
        own = {"COMPATGATE_DATABASE": f"sqlite:///{folder}/gate.db", "COLUMNS": "96"}
        own["COMPATGATE_WORKLOADS"] = str(steady_workloads(folder))
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("COMPATGATE_")}
        self.environment |= {**own, "NO_COLOR": "1", "PATH": path}

    def take(self, step: Step) -> None:
        """Write the file, or type the command and compare what it says."""
        if step.file:
            (self.folder / step.file).write_text(step.text)
        elif step.text.split()[1] == "serve":
            self._serve(step.text)
        elif step.text.split()[1] == "worker":
            self._start(step.text)
            until(lambda: "laptop" in self._call("compatgate canary hosts").stdout)
        else:
            done = self._call(step.text)
            assert done.returncode == step.status, f"{step.text}\n{done.stdout}{done.stderr}"
            said = done.stdout or done.stderr
            assert matches(step.expected, said), f"{step.text}\n{said}"

    def leave(self) -> None:
        """End what was left running."""
        for process in self.running:
            process.terminate()
        for process in self.running:
            process.communicate(timeout=60)

    def _call(self, command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", command.replace(ADDRESS, self.address)],
            capture_output=True,
            text=True,
            timeout=120,
            cwd=self.folder,
            env=self.environment,
            check=False,
        )

    def _start(self, command: str) -> subprocess.Popen[str]:
        _, *words = command.split()
        process = subprocess.Popen(
            [sys.executable, "-m", "compatgate", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=self.folder,
            env=self.environment,
        )
        self.running.append(process)
        return process

    def _serve(self, command: str) -> None:
        process = self._start(f"{command} --port 0 --workers 1")
        assert process.stdout is not None
        for line in process.stdout:
            if found := re.search(r"serving on (\S+)", line):
                self.address = found[1]
                return
        pytest.fail("the gate has not started")


def test_the_tutorial_works_from_beginning_to_end(tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("no curl")
    reader = Reader(tmp_path)
    try:
        for page in PAGES:
            for step in steps(page):
                reader.take(step)
    finally:
        reader.leave()


def test_there_are_many_commands() -> None:
    commands = [step for page in PAGES for step in steps(page) if not step.file]
    assert len(commands) > 20
    assert len([step for step in commands if step.expected]) > 15
