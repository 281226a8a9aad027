"""Servers under test: this tree's, and beside it that of another commit or folder."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parents[1]
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Served:
    """A server that a script of this folder runs."""

    process: subprocess.Popen[str]
    port: int

    def cpu_seconds(self) -> float:
        """Processor time that its processes have taken so far."""
        return sum(map(_cpu_seconds, family(self.process.pid)))


@contextmanager
def served(script: str, options: Sequence[str], root: Path = HERE) -> Iterator[Served]:
    """Run ``bench/SCRIPT --serve`` of a tree, which prints its port.

    Args:
        script: name of the file.
        options: of the script.
        root: of the tree; its own environment runs it, where it has one.
    """
    own = root / ".venv" / "bin" / "python"
    with subprocess.Popen(
        [str(own if own.exists() else sys.executable), f"bench/{script}", "--serve", *options],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            yield Served(process, int(process.stdout.readline()))
        finally:
            process.terminate()


@contextmanager
def tree_of(name: str) -> Iterator[Path]:
    """Give the tree that a folder or a commit names; a commit is checked out for this long."""
    if Path(name).is_dir():
        yield Path(name).resolve()
        return
    with tempfile.TemporaryDirectory() as folder:
        git = ["git", "-C", str(HERE), "worktree"]
        root = Path(folder, "tree")
        subprocess.run([*git, "add", "--detach", str(root), name], check=True, capture_output=True)
        try:
            yield root
        finally:
            subprocess.run([*git, "remove", "--force", str(root)], check=True)


def family(pid: int) -> list[int]:
    """A process and those that it started."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [pid, *(one for child in children for one in family(int(child)))]


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
