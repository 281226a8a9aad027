"""Whether a lock is for the target's Python at all."""

from __future__ import annotations

from compatgate.discovery.lockfiles.platform import Markers, Platform
from compatgate.discovery.observed import Conflict


def python_conflict(
    markers: Markers, file: str, platform: Platform, requires: str
) -> tuple[Conflict, ...]:
    """A conflict when the target's Python is outside what the lock was made for."""
    if markers.python_fits:
        return ()
    have = f"the target has {platform.python}" if platform.python else "no known Python is"
    return (Conflict("python", f"{file} is for Python {requires}, {have}", None),)
