"""Names of runs and steps, where something is called by them."""

from __future__ import annotations

import re

from compatgate.errors import BadInput

_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,120}")


def safe(name: str) -> str:
    """The name, where it can be that of a folder and of a job.

    Raises:
        BadInput: it cannot.
    """
    if not _SAFE.fullmatch(name):
        raise BadInput(f"{name!r} is not a name", field="run", value=name)
    return name
