"""Lockfiles that the tools write now, against the package index."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest
from known_packages import PACKAGES

from compatgate.discovery.lockfiles.interface import LockReading
from compatgate.discovery.lockfiles.platform import Platform
from compatgate.discovery.lockfiles.read import read_lockfile

PACKAGE = "nvidia-cuda-runtime-cu12==12.4.127"  # small, and a component
PYTHON = ".".join(map(str, sys.version_info[:2]))


def missing(why: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(why)
    pytest.skip(why)


def run(*command: str, folder: Path) -> None:
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=120, check=False
        )
    except subprocess.TimeoutExpired:
        missing(f"{' '.join(command)} took too long")
    if done.returncode:
        missing(f"{' '.join(command)}: {done.stderr.strip()[-500:]}")


def read(path: Path) -> LockReading:
    return read_lockfile(
        path, path.read_bytes(), known=PACKAGES, platform=Platform("linux", "x86_64", PYTHON)
    )


def test_what_pip_locks_is_read(tmp_path: Path) -> None:
    command = (sys.executable, "-m", "pip", "--disable-pip-version-check", "lock", PACKAGE)
    run(*command, "--output", "pylock.toml", folder=tmp_path)
    reading = read(tmp_path / "pylock.toml")
    assert [(o.component, o.version) for o in reading.observations] == [("cuda", "12.4.127")]
    assert not reading.open


def test_what_pip_freezes_is_read(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "freeze", "--all"]
    text = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    lock = tmp_path / "requirements.txt"
    lock.write_text(f"{text}\n{PACKAGE}\n")
    assert ("cuda", "12.4.127") in {(o.component, o.version) for o in read(lock).observations}


def test_what_uv_locks_is_read(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        f'[project]\nname = "trainer"\nversion = "0.1"\nrequires-python = ">={PYTHON}"\n'
        f'dependencies = ["{PACKAGE}"]\n'
    )
    run(sys.executable, "-m", "uv", "lock", folder=tmp_path)
    reading = read(tmp_path / "uv.lock")
    assert [(o.component, o.version) for o in reading.observations] == [("cuda", "12.4.127")]
