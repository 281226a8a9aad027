"""compatgate: may this GPU stack run on that target?"""

from __future__ import annotations

import os
from functools import cache

RELEASE = "0.2.0.dev0"
_GIT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), ".git")


@cache
def version() -> str:
    """Return the release; in development with the commit: ``0.2.0.dev0+g6551d61d``.

    A checkout asks git. A wheel states what it was built from; `pyproject.toml` asks this function.
    """
    if ".dev" not in RELEASE:
        return RELEASE
    built = _ask_git() if os.path.exists(_GIT) else _read_metadata()
    return built if built.startswith(f"{RELEASE}+") else RELEASE


def _ask_git() -> str:
    import subprocess

    command = ["git", f"--git-dir={_GIT}", "rev-parse", "--short=8", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=5)  # noqa: S603
    except (OSError, subprocess.SubprocessError):  # no git, or a checkout that it does not trust
        return RELEASE
    return f"{RELEASE}+g{done.stdout.strip()}"


def _read_metadata() -> str:
    from importlib import metadata

    try:
        return metadata.version("compatgate")
    except metadata.PackageNotFoundError:
        return RELEASE
