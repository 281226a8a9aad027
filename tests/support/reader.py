"""Types the commands of pages for newcomers as a reader does: in terminals, one after the other."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
LASTING = ("make serve", "compatgate worker")
"""Commands that go on in a terminal of their own."""


@dataclass(frozen=True)
class Step:
    """A command of a page, its exit status and its output; or a file that the page shows."""

    text: str
    expected: str = ""
    status: int = 0
    file: str = ""


def read_blocks(page: str) -> Iterator[list[Step]]:
    """Yield what a reader of a page writes and types in each block, in order."""
    for language, title, block in BLOCK.findall(page):
        if title:
            yield [Step(block, file=title)]
        if language == "console":
            yield list(_read_commands(block))


def _read_commands(block: str) -> Iterator[Step]:
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, rest = "", part.splitlines(keepends=True)
        while not command or command.count("'") % 2:  # a command ends where its quotes do
            command += rest.pop(0)
        command, expected = command.rstrip("\n"), "".join(rest)
        text, _, remark = command.partition("   # exits with ")
        yield Step(text, expected, int(remark or 0))


def matches(expected: str, printed: str) -> bool:
    """Say whether the output is as documented; ``...`` stands for anything."""
    parts = [re.escape(part.strip("\n")) for part in expected.rstrip("\n").split("...")]
    return re.fullmatch(".*".join(parts), printed.rstrip("\n"), re.DOTALL) is not None


class Terminal:
    """A shell of its own, whose folder and variables last from one command to the next.

    Args:
        folder: where it is opened.
        environment: what it begins with.
        scratch: for its output.
        replaced: words of pages, and what stands for them here.
    """

    def __init__(
        self,
        folder: Path,
        environment: Mapping[str, str],
        scratch: Path,
        replaced: Mapping[str, str],
    ) -> None:
        self._replaced, self.log = replaced, scratch / f"terminal-{id(self)}"
        self._errors = self.log.with_suffix(".errors")
        self.log.touch()
        self._shell = subprocess.Popen(
            ["bash", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder,
            env=environment,
        )

    def call(self, command: str) -> tuple[int, str]:
        """Type a command and wait for its end; return its status, and what it printed."""
        self._type(f"{{ {command}\n}} > {self.log} 2> {self._errors} < /dev/null; echo $?")
        assert self._shell.stdout
        status = int(self._shell.stdout.readline())
        return status, self.log.read_text() or self._errors.read_text()

    def start(self, command: str) -> None:
        """Type a command that goes on."""
        self._type(f"exec {command} > {self.log} 2>&1 < /dev/null")

    def close(self) -> None:
        """End what goes on."""
        self._shell.terminate()
        self._shell.communicate(timeout=60)

    def _type(self, command: str) -> None:
        for word, other in self._replaced.items():
            command = command.replace(word, other)
        assert self._shell.stdin
        self._shell.stdin.write(f"{command}\n")
        self._shell.stdin.flush()
