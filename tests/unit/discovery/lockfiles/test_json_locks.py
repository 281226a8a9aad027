"""Locks in JSON: Pipenv's, and what pip prints of an installation."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from compatgate.errors import BadInput, InconclusiveInput

TORCH = "https://download.pytorch.org/whl/cu124/torch-2.4.1%2Bcu124-cp311-cp311-linux_x86_64.whl"
LINUX = {"sys_platform": "linux", "platform_machine": "x86_64", "python_version": "3.11"}


def report(**members: Any) -> str:
    return json.dumps({"version": "1", "pip_version": "25.1", "environment": LINUX, **members})


def test_a_report_names_the_file_of_each_package(read, stack):
    entry = {
        "download_info": {"url": TORCH, "archive_info": {"hashes": {"sha256": "b" * 64}}},
        "metadata": {"name": "torch", "version": "2.4.1+cu124", "requires_dist": ["numpy>=1"]},
    }
    text = report(install=[entry])
    assert stack("report.json", text) == {"torch": "2.4.1+cu124"}
    (wheel,) = read("report.json", text).origins["torch"].wheels
    assert (wheel.url, wheel.sha256) == (TORCH, "b" * 64)


def test_an_inspection_lists_what_is_installed(stack):
    cudnn = {"metadata": {"name": "nvidia-cudnn-cu12", "version": "9.1.0.70"}}
    torch = {"metadata": {"name": "torch", "version": "2.4.1+cu124"}}
    assert stack("inspect.json", report(installed=[torch, cudnn])) == {
        "torch": "2.4.1+cu124",
        "cudnn": "9.1.0.70+cu12",
    }


def test_what_pip_prints_here_is_read(read):
    ran = subprocess.run(
        [sys.executable, "-m", "pip", "inspect"], capture_output=True, text=True, check=True
    )
    python = ".".join(map(str, sys.version_info[:2]))
    machine = json.loads(ran.stdout)["environment"]["platform_machine"]
    cpu = {"arm64": "aarch64"}.get(machine, machine)
    assert read("here.json", ran.stdout, target=f"linux {cpu} {python}").format == "pip inspect"


@pytest.mark.parametrize("member", ["install", "installed"])
def test_a_report_of_another_machine_decides_nothing(read, member):
    text = report(**{member: [{"metadata": {"name": "torch", "version": "2.4.1"}}]})
    with pytest.raises(InconclusiveInput, match="is for linux x86_64, the target is linux aarch64"):
        read("report.json", text, target="linux aarch64 3.11")


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("r.json", report(install=[])[:-1], "is not valid JSON"),
        ("r.json", report(install=[{}]), "must state name and version"),
        ("r.json", report(install=[], version="2"), "version '2' of pip's format"),
    ],
)
def test_a_malformed_file_is_named_with_its_place(read, name, text, says):
    with pytest.raises(BadInput) as caught:
        read(name, text)
    assert says in str(caught.value)
