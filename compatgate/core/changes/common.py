"""What all changes share."""

from __future__ import annotations

from typing import Any

MOST_TRIED = 6
"""Candidates of one kind; a fix that is further away is not a small change."""


def described(change: dict[str, Any]) -> str:
    """A change in words."""
    parts = []
    for name, value in change.items():
        if value is None:
            parts.append(f"remove {name}")
        elif name == "driver":
            parts.append(
                f"raise the driver to {value.removeprefix('>=')} or newer"
                if value.startswith(">=")
                else f"use driver {value}"
            )
        elif name == "arch":
            parts.append(f"build it for {', '.join(value)}")
        else:
            parts.append(f"use {name} {value}")
    return ", ".join(parts)
