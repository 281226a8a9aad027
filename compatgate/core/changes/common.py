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
            parts.append(_driver(value))
        elif name == "arch":
            parts.append(f"build it for {', '.join(value)}")
        else:
            parts.append(f"use {name} {value}")
    return ", ".join(parts)


def _driver(value: str) -> str:
    if not value.startswith(">="):
        return f"use driver {value}"
    floor, _, end = value.removeprefix(">=").partition(",<")
    return f"raise the driver to {floor} or newer" + (f", below {end}" if end else "")
