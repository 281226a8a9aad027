"""The examples of docs/reference/rest.md, run in order on a service of their own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "rest.md"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HOST = "http://127.0.0.1:8080"


def examples() -> list[tuple[str, str]]:
    """Commands, and what each prints."""
    found: list[tuple[str, str]] = []
    for block in BLOCK.findall(PAGE.read_text()):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            lines = part.rstrip("\n").split("\n")
            output = [line for line in lines[1:] if not line.startswith("    ")]
            command = [line for line in lines if line not in output]
            found.append(("\n".join(command), "\n".join(output)))
    return found


def matches(expected: str, printed: str) -> bool:
    """Whether it is what was expected, ``...`` standing for anything."""
    pattern = ".*".join(re.escape(part) for part in expected.split("..."))
    return re.fullmatch(pattern, printed, re.DOTALL) is not None


def test_the_examples_print_what_the_page_says(server: Any, tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("no curl")
    address = f"http://127.0.0.1:{server.port}"
    for command, expected in examples():
        done = subprocess.run(
            ["sh", "-c", command.replace(HOST, address)],
            capture_output=True,
            text=True,
            timeout=30,
            cwd=tmp_path,
            env={**os.environ, "TOKEN": server.token},
        )
        assert done.returncode == 0, command
        assert matches(expected, done.stdout), f"{command}\n{done.stdout}"


def test_there_are_examples() -> None:
    assert len(examples()) > 12


def test_the_page_names_every_scope_and_every_resource() -> None:
    text = PAGE.read_text()
    for word in ("read", "gate", "operate", "bless", "admin", "/metrics", "If-Match", "openapi"):
        assert word in text
