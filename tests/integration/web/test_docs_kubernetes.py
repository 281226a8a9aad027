"""The examples of docs/how-to/kubernetes.md, run on a service of their own."""

from __future__ import annotations

import copy
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import prepared
import pytest
import yaml

from compatgate.documents.sources import read_paths
from compatgate.service.admission.kinds import parse_kinds
from compatgate.service.admission.pods import GPU_ANNOTATION
from compatgate.service.admission.schemas import EXAMPLES

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "kubernetes.md"
BLOCK = re.compile(r"^```(console|yaml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HOST = "http://127.0.0.1:8080"
_HERE = re.compile(r"<<'END'\n.*?^END$", re.DOTALL | re.MULTILINE)


def blocks(kind: str) -> list[str]:
    return [text for found, text in BLOCK.findall(PAGE.read_text()) if found == kind]


def commands() -> list[tuple[str, str]]:
    """Commands with their here-documents, and what each prints."""
    found = []
    for block in blocks("console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            here = _HERE.search(part)
            end = here.end() if here else part.index("\n")
            found.append((part[:end], part[end:].strip("\n")))
    return found


def test_the_examples_print_what_the_page_says(server: Any, tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("no curl")
    address = f"http://127.0.0.1:{server.port}"
    for command, expected in commands():
        text = command.replace(HOST, address)
        done = subprocess.run(
            ["sh", "-c", re.sub(r"^compatgate ", f"{prepared.program()} ", text)],
            capture_output=True,
            text=True,
            timeout=60,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(PAGE.parents[1])},
        )
        pattern = ".*".join(re.escape(part) for part in expected.split("..."))
        printed = done.stdout.rstrip("\n")
        assert re.fullmatch(pattern, printed, re.DOTALL), f"{command}\n{done.stdout}{done.stderr}"


def test_there_are_examples() -> None:
    assert len(commands()) == 3


def test_the_files_of_the_page_are_what_the_program_reads(tmp_path: Path) -> None:
    waiver, kinds = blocks("yaml")
    (tmp_path / "waiver.yaml").write_text(waiver)
    assert read_paths([str(tmp_path / "waiver.yaml")])
    assert yaml.load(waiver, yaml.CSafeLoader)["spec"]["rules"] == ["CG822"]
    assert parse_kinds(kinds.encode(), "page").kinds[0].kind == "Training"


def test_the_gate_refuses_the_pod_that_the_page_tries_it_with(server: Any) -> None:
    text = PAGE.read_text()
    said = re.search(r"^- `denied the request: \.\.\. (.*?)`", text, re.MULTILINE)
    annotations = dict(re.findall(r"--annotations (\S+?)=(\S+)", text))
    assert said is not None
    assert set(annotations) == {GPU_ANNOTATION, "compatgate.dev/target"}, (
        "else the cluster does not ask"
    )
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "gate-test", "annotations": annotations},
        "spec": {"containers": [{"name": "gate-test", "image": "registry.example/none"}]},
    }
    review = copy.deepcopy(EXAMPLES["pod"])
    review["request"] |= {"object": pod, "dryRun": True, "namespace": "default"}
    sent = server.ask("POST", "/hooks/kubernetes/validate", review)
    answer = sent.json()["response"]
    assert answer["allowed"] is False
    assert said[1] in answer["status"]["message"]
