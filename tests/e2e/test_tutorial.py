"""The commands of the README, and then of docs/tutorial, give the documented answers, in order.

A reader has a checkout, an empty home and nothing else. Links stand for the checkout, so that the
demonstration of whoever runs this stays as it is. `make` installs nothing, as tests have their
environment; the port is a free one.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import prepared
import pytest
from reader import LASTING, Step, Terminal, matches, read_blocks
from staging import until

from compatgate.resources import canary_dir

ROOT = Path(__file__).parents[2]
TUTORIAL = ROOT / "docs" / "tutorial"
MEASURED = "(time.perf_counter() - begin) * 1000"
PAGES = [
    ROOT / "README.md",
    *(TUTORIAL / f"{name}.md" for name in ("first-verdict", "bless-an-entry")),
    *(TUTORIAL / f"{name}.md" for name in ("run-a-canary", "admission")),
]


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


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class Reader:
    """Types the commands of pages in terminals."""

    def __init__(self, folder: Path) -> None:
        self.checkout, self.scratch = folder / "checkout", folder / "scratch"
        home = folder / "home"
        for made in (self.checkout, self.scratch, home):
            made.mkdir()
        for file in ROOT.iterdir():
            if file.name not in (".demo", ".git", ".venv"):
                (self.checkout / file.name).symlink_to(file)
        (self.checkout / ".venv").symlink_to(sys.prefix)
        port = str(free_port())
        self.replaced = {":8080": f":{port}"}
        self.served = f"make serve --assume-old .venv/.installed PORT={port}"
        self.environment = {"HOME": str(home), "PATH": os.defpath, "COLUMNS": "96"}
        self.environment |= {"NO_COLOR": "1", "TMPDIR": str(self.scratch)}
        self.environment |= prepared.of_interpreter()
        self.environment["COMPATGATE_WORKLOADS"] = str(steady_workloads(folder))
        self.terminals: list[Terminal] = []
        self.reading = self.open()

    def open(self) -> Terminal:
        terminal = Terminal(self.checkout, self.environment, self.scratch, self.replaced)
        self.terminals.append(terminal)
        return terminal

    def take(self, block: list[Step]) -> None:
        """Write a file, or type the commands of a block, each after the end of the one before."""
        lasting = next((step.text for step in block if step.text.startswith(LASTING)), "")
        terminal = self.open() if lasting else self.reading
        for step in block:
            if step.file:
                terminal.call(f"cat > {step.file} <<'END'\n{step.text}END")
            elif step.text == lasting:
                terminal.start(lasting.replace("make serve", self.served))
                self._await(lasting, terminal)
            else:
                status, printed = terminal.call(step.text)
                assert status == step.status, f"{step.text}\n{printed}"
                assert matches(step.expected, printed), f"{step.text}\n{printed}"

    def close(self) -> None:
        for terminal in reversed(self.terminals):
            terminal.close()

    def _await(self, command: str, terminal: Terminal) -> None:
        """Wait until a lasting command is ready."""
        if command.startswith("compatgate worker"):
            until(lambda: "laptop" in self.reading.call("compatgate canary hosts")[1])
        else:
            until(lambda: f"its pages: http://127.0.0.1{self.replaced[':8080']}/ui/"
                  in terminal.log.read_text())  # fmt: skip


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    if shutil.which("curl") is None:
        pytest.skip("no curl")
    made = Reader(tmp_path)
    yield made
    made.close()


def test_readme_and_tutorial_work_from_beginning_to_end(reader: Reader) -> None:
    readme, *tutorial = ([*read_blocks(page.read_text())] for page in PAGES)
    assert readme[0] == [Step("make serve")]
    for block in readme:
        reader.take(block)
    assert reader.reading.call("command -v compatgate")[1].endswith("/.venv/bin/compatgate\n")
    reader.reading.call(f'compatgate() {{ {prepared.program()} "$@"; }}')  # the same, but quick
    for block in chain.from_iterable(tutorial):
        reader.take(block)
    printed = reader.terminals[1].log.read_text()
    assert "In another terminal, in this folder: . .venv/bin/activate\n" in printed
    assert (reader.checkout / ".demo" / "gate.db").is_file()
    assert not list(Path(reader.environment["HOME"]).rglob("*.db"))


def test_there_are_many_commands() -> None:
    steps = [step for page in PAGES for block in read_blocks(page.read_text()) for step in block]
    commands = [step for step in steps if not step.file]
    assert len(commands) > 20
    assert len([step for step in commands if step.expected]) > 15
    assert {step.text for step in commands if re.match("make ", step.text)} == {"make serve"}
