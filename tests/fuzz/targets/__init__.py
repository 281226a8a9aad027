"""What reads files that others wrote, each with real samples of them.

A target takes bytes and gives a result or raises `CompatgateError`; anything else is a defect.
"""

from __future__ import annotations

from targets import binaries, clusters, images, machines, measured, packages, signed
from targets.target import Target

_KINDS = (packages, images, binaries, machines, measured, clusters, signed)

__all__ = ["Target", "targets"]


def targets() -> dict[str, Target]:
    """All readers by name."""
    return {name: target for kind in _KINDS for name, target in kind.targets().items()}
