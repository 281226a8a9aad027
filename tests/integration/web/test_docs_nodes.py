"""The examples of docs/how-to/nodes.md, run on a service of their own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import prepared
import pytest

from compatgate.service.cluster import labels

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "nodes.md"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HOST = "http://127.0.0.1:8080"
_HERE = re.compile(r"<<'END'\n.*?^END$", re.DOTALL | re.MULTILINE)


def commands() -> list[tuple[str, str]]:
    """Commands with their here-documents, and what each prints."""
    found = []
    for block in BLOCK.findall(PAGE.read_text()):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            here = _HERE.search(part)
            end = here.end() if here else part.index("\n")
            found.append((part[:end], part[end:].strip("\n")))
    return found


def test_the_examples_print_what_the_page_says(server: Any, tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("no curl")
    address = f"http://127.0.0.1:{server.port}"
    own = {"PYTHONPATH": str(PAGE.parents[1]), "COMPATGATE_SERVER": address}
    program = prepared.program()
    for command, expected in commands():
        done = subprocess.run(
            ["sh", "-c", re.sub(r"^compatgate ", f"{program} ", command.replace(HOST, address))],
            capture_output=True,
            text=True,
            timeout=60,
            cwd=tmp_path,
            env={**os.environ, **own, "COMPATGATE_TOKEN": server.token},
        )
        pattern = ".*".join(re.escape(part) for part in expected.split("..."))
        printed = done.stdout.rstrip("\n")
        assert re.fullmatch(pattern, printed, re.DOTALL), f"{command}\n{done.stdout}{done.stderr}"


def test_there_are_examples() -> None:
    assert len(commands()) == 11


def test_the_page_names_what_is_set_on_nodes() -> None:
    text = PAGE.read_text()
    for name in (labels.LABEL, labels.TAINT, labels.SET_ANNOTATION, labels.EFFECT):
        assert name in text
