"""Packages of npm that tests drive, each set installed once into a folder of ``.cache``.

Without Node.js and npm their tests are skipped, or fail where ``CI`` is set.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest

_CACHE = Path(__file__).parents[2] / ".cache"
_PATIENCE = 240


def installed(folder: Path, name: str) -> Path:
    """Install what a ``package.json`` names; skip the test where npm is missing."""
    if not (shutil.which("node") and shutil.which("npm")):
        reason = "no Node.js: install Debian's nodejs and npm"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    cache = _CACHE / name
    cache.mkdir(parents=True, exist_ok=True)
    wanted = (folder / "package.json").read_text()
    with (cache / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = cache / ".installed"
        if not stamp.exists() or stamp.read_text() != wanted:
            shutil.copy(folder / "package.json", cache)
            command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts"]
            done = subprocess.run(
                command, cwd=cache, capture_output=True, text=True, timeout=_PATIENCE
            )
            assert done.returncode == 0, done.stderr
            stamp.write_text(wanted)
    return cache
