"""``make`` installs what the lock names, on every Python and from the public index alone."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from packaging.markers import Marker
from packaging.utils import parse_wheel_filename
from uv import find_uv_bin

ROOT = Path(__file__).parents[2]
LOCK: dict[str, Any] = tomllib.loads((ROOT / "uv.lock").read_text())
PUBLIC = {"pypi.org", "files.pythonhosted.org"}
PYTHONS = ("3.11", "3.12", "3.13", "3.14")


def uv(*arguments: str) -> str:
    """Run uv without a network, and without what this machine sets for it."""
    environment = {name: text for name, text in os.environ.items() if not name.startswith("UV_")}
    done = subprocess.run(
        [find_uv_bin(), *arguments, "--offline", "--no-config", "--quiet"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"run `make lock`: {done.stderr}"
    return done.stdout


def test_the_list_is_what_the_lock_exports() -> None:
    exported = uv("export", "--frozen", "--no-emit-project", "--no-header", "--no-annotate")
    assert (ROOT / "requirements-dev.txt").read_text() == exported, "run `make lock`"


def test_the_lock_agrees_with_the_project() -> None:
    uv("lock", "--check")


def test_the_lock_names_the_public_index_alone() -> None:
    addresses = re.findall(r'https?://[^"]+', (ROOT / "uv.lock").read_text())
    assert {urlsplit(address).hostname for address in addresses} == PUBLIC
    assert not re.search(r"://|^--|@ ", (ROOT / "requirements-dev.txt").read_text(), re.MULTILINE)


@pytest.mark.parametrize("python", PYTHONS)
def test_each_package_has_a_wheel_for(python: str) -> None:
    here = {"python_version": python, "python_full_version": f"{python}.9"}
    lines = re.findall(
        r"^([\w.-]+)==(\S+) ; (.*) \\$", (ROOT / "requirements-dev.txt").read_text(), re.M
    )
    wanted = {(name, version) for name, version, marker in lines if Marker(marker).evaluate(here)}
    tag = "cp" + python.replace(".", "")
    missing = []
    for package in LOCK["package"]:
        names = [wheel["url"].rsplit("/", 1)[-1] for wheel in package.get("wheels", [])]
        tags = {str(each) for name in names for each in parse_wheel_filename(name)[3]}
        fits = re.compile(rf"({tag}-{tag}|cp3\d+-abi3|py3-none|{tag}-none)-(any|manylinux.*x86_64)")
        if (package["name"], package.get("version")) in wanted and not any(
            map(fits.fullmatch, tags)
        ):
            missing.append(package["name"])
    assert not missing
    assert len(wanted) > 150
